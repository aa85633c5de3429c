"""Files in object stores, such as `s3://bucket/runs/1`, by way of fsspec.

    store_path.py  a path there, with the methods of `pathlib.Path`
    places.py      the path that a string names, local or there; opens both

fsspec and not `tf.io.gfile`: TensorFlow's wheel has `gs://` only, and
`tensorflow-io`, which has `s3://`, ends with TensorFlow 2.16.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
