"""What `kerasmgpu.callbacks.Checkpoint` is made of, one subject per file.

    file_format.py      one checkpoint as one file; damage is found on reading
    snapshot.py         what a checkpoint holds, taken and put back
    folder.py           the files of a run: newest whole one, retention
    plain_data.py       numbers, strings, arrays and containers as JSON
    callback_states.py  what training changed in the other callbacks
    background.py       one write at a time beside training
    schedule.py         when to save
    preemption.py       SIGTERM, noticed at the end of a step
    restoring.py        the file to resume from, the same on all workers

What reaches past Keras's public API (the state of a model, of random numbers
and of the data) is in `kerasmgpu/_keras/`.
"""
