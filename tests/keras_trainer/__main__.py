import sys, json
import pytest, tensorflow as tf
from tests.keras_trainer.plugin import UnderStrategy
which = sys.argv[1]; rest=sys.argv[2:]
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0],[tf.config.LogicalDeviceConfiguration()]*2)
d=["CPU:0","CPU:1"]
if which=="ours":
    import kerasmgpu
    s=kerasmgpu.MirroredStrategy(d)
elif which=="stock":
    s=tf.distribute.MirroredStrategy(d)
else: s=None
r=UnderStrategy(s)
pytest.main(["-q","--noconftest","--durations=12","-p","no:cacheprovider","-c","/dev/null","--pyargs","keras.src.trainers.trainer_test","--tb=short",*rest],plugins=[r])
print(r.counts())
for k,v in r.errors.items(): print(k,"|",v)
