"""GPUs, without TensorFlow: what their driver and their makers say.

- `nvml`: the GPUs of this machine; `gpu`: what the driver counts of each.
- `gpu_links`: which GPUs are connected how.
- `cuda_devices`: GPUs as CUDA names and numbers them.
- `data_sheets`: memory and peaks of GPUs, by name.
- `device_memory`: a device's memory, as text.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
