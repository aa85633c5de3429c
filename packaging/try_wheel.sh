#!/usr/bin/env bash
# Installs a wheel into an empty environment, without extras, and uses it there:
#
#     packaging/try_wheel.sh dist/kerasmgpu-*.whl
set -euo pipefail
wheel=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install --quiet "$wheel"
environment/bin/pip check
environment/bin/kerasmgpu --version
environment/bin/kerasmgpu autoencoder --num_replicas=2 --virtual_devices=2 --epochs=1
environment/bin/kerasmgpu doctor
