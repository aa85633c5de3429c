"""Eight logical CPU devices stand in for GPUs, made before TensorFlow starts."""

import os
import signal

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf

# Under nohup and in the background these are ignored, and so they would be by
# the programs that tests start and end. A handler is not inherited.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

(_cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    _cpu, [tf.config.LogicalDeviceConfiguration()] * 8
)


@pytest.fixture(scope="session")
def replicas():
    """Function from a number of replicas to a strategy with that many."""
    import functools

    import kerasmgpu

    @functools.cache
    def strategy(num_replicas):
        return kerasmgpu.strategy(num_replicas)

    return strategy
