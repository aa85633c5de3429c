"""Lists this machine's GPUs without initialising them in this process."""

import json
import subprocess
import sys

from kerasmgpu.commands import child_process, loading
from kerasmgpu.errors import InputError

_NAMES = """
import json, tensorflow as tf
details = tf.config.experimental.get_device_details
gpus = tf.config.list_physical_devices("GPU")
print(json.dumps([details(gpu).get("device_name", gpu.name) for gpu in gpus]))
"""


def names():
    """Returns the GPUs that TensorFlow sees, listed in a child process.

    Returns:
        List of strings.

    Raises:
        InputError: If TensorFlow does not start.
    """
    print(f"looking for GPUs: {loading.LINE}", file=sys.stderr, flush=True)
    answer = subprocess.run(
        [sys.executable, "-c", _NAMES], capture_output=True, text=True
    )
    if answer.returncode != 0:
        lines = answer.stderr.splitlines()
        raise InputError(
            "TensorFlow does not start: "
            + child_process.failure_reason(answer.returncode, lines)
        )
    return json.loads(answer.stdout.splitlines()[-1])
