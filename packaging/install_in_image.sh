#!/usr/bin/env bash
# Installs the sources in a folder, and leaves a TensorFlow that is there as it is:
# NVIDIA's build knows GPUs that the one of the package index doesn't.
#
#     packaging/install_in_image.sh FOLDER
set -euo pipefail
export PIP_NO_CACHE_DIR=1
if python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("tensorflow"))'; then
  # Names and bounds from setup.py, but for TensorFlow's.
  python - "$1" > /tmp/requirements.txt <<'REQUIREMENTS'
import pathlib, re, sys

text = pathlib.Path(sys.argv[1], "setup.py").read_text("utf-8")
found = re.findall(r'"((?!tensorflow)[\w-]+>=[\d.]+)"', text.partition("install_requires")[2])
print("\n".join([*found, "polars", "pyyaml", "matplotlib", "nvidia-ml-py"]))
REQUIREMENTS
  pip install -r /tmp/requirements.txt
  rm /tmp/requirements.txt
  pip install --no-deps "$1"
else
  pip install "$1[gpu,recipes,report]"
fi
