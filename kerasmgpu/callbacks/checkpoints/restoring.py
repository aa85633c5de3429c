"""The checkpoint to resume from, the same on all workers.

The first worker reads its folder and sends the file to the others, which need
not see that folder.
"""

import io

from kerasmgpu.callbacks.checkpoints import file_format
from kerasmgpu.errors import InputError
from kerasmgpu.job import workers

_NOTHING, _ERROR, _FILE = b"N", b"E", b"F"
"""First byte of what the first worker sends."""


def newest(strategy, folder, resume):
    """What to resume from; collective.

    Args:
        strategy: `tf.distribute.Strategy` of the model.
        folder: The first worker's `Folder`.
        resume: Boolean, whether the run there may be continued.

    Returns:
        `(name, manifest, arrays)`, or `None` where there is no checkpoint.

    Raises:
        InputError: On all workers, if the first worker's folder can't be
            used, if all its checkpoints are damaged, or if there are some and
            `resume` is false.
    """
    found, error = None, None
    if workers.is_first(strategy):
        try:
            folder.prepare()
            _require_empty_or_resume(folder, resume)
            found = folder.newest_whole()
        except (InputError, OSError) as raised:
            error = raised
    if workers.count(strategy) == 1:
        if error is not None:
            raise error
        if found is None:
            return None
        path, manifest, arrays = found
        return path.name, manifest, arrays
    return _unpack(workers.broadcast(strategy, _pack(found, error)))


def _require_empty_or_resume(folder, resume):
    files = folder.files()
    if files and not resume:
        raise InputError(
            f"The directory of checkpoints holds those of a run. Received: "
            f"resume=False and {folder.path} with {len(files)} checkpoints; "
            "choose another directory, move them away, or set resume=True"
        )


def _pack(found, error):
    if error is not None:
        return _ERROR + str(error).encode()
    if found is None:
        return _NOTHING
    path = found[0]
    return _FILE + path.name.encode() + b"\n" + path.read_bytes()


def _unpack(data):
    kind, content = data[:1], data[1:]
    if kind == _ERROR:
        raise InputError(content.decode())
    if kind == _NOTHING:
        return None
    name, _, file = content.partition(b"\n")
    return name.decode(), *file_format.read(io.BytesIO(file))
