"""The parts of `kerasmgpu.callbacks.Checkpoint`, one subject per file.

    file_format.py      arrays and a manifest as one file, with a checksum
    stored.py           reads a checkpoint, one file or sharded, by slices
    snapshot.py         takes and restores the content of a checkpoint
    folder.py           the files of a run: newest undamaged one, retention
    store_folder.py     the same in an object store, where nothing is renamed
    plain_data.py       numbers, strings, arrays and containers as JSON
    callback_states.py  attributes of the other callbacks that training changed
    schedule.py         when to save
    saving.py           writes beside the training, on one worker or on all
    converting.py       to and from Keras's files, without the model
    restoring.py        the checkpoint to resume from, the same on all workers
    found_messages.py   what is said of the checkpoint that a fit has found
    stopping.py         saves and ends on SIGTERM, Ctrl-C and notices
    notices.py          clouds' notices that a machine will be taken away

Access beyond Keras's public API (the state of the model, of random numbers and
of the data) is in `kerasmgpu/_keras/`.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
