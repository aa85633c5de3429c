"""A job of several workers: who they are, how they meet and stay together.

    cluster.py        who takes part, by `TF_CONFIG`, and which this one is
    slurm.py          the same by Slurm's variables
    addresses.py      machines and addresses as users write them
    job_token.py      what the workers of a run know, and nobody else
    channel.py        messages between processes
    handshake.py      both ends of a connection prove that they know the token
    entrance.py       a port, where each connection is heard apart
    rendezvous.py     the workers meet before TensorFlow starts
    membership.py     a worker joins its job, once TensorFlow runs
    watch.py          a worker that is gone is noticed, and named
    loss.py           how it is named, by workers and the launcher
    seeds.py          all workers draw alike
    workers.py        what workers tell one another through TensorFlow
    exit_status.py    what the launcher and Slurm's requeue understand
    file_sharding.py  whether they divide the files of a data set, or its rows

The launcher's part needs no TensorFlow: `cluster.py`, `slurm.py`,
`addresses.py`, `job_token.py`, `channel.py`, `handshake.py`, `entrance.py`,
`rendezvous.py`, `watch.py`, `loss.py` and `exit_status.py` import none.
"""
