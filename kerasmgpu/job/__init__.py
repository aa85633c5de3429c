"""A job of several workers: cluster resolution, rendezvous, failure detection.

    cluster.py        the workers' addresses and this worker's index: `TF_CONFIG`
    slurm.py          the same from Slurm's variables
    addresses.py      parsing of hosts and addresses
    job_token.py      the shared secret of a run's workers
    channel.py        messages between processes
    handshake.py      mutual authentication of a connection by the token
    entrance.py       a listening port with a thread per new connection
    rendezvous.py     the rendezvous of the workers before TensorFlow starts
    membership.py     a worker joins its job, once TensorFlow runs
    links.py          connections with heartbeats, served by one thread
    watch.py          detection of lost workers
    loss.py           the log line about a lost worker, and its parser
    seeds.py          the same RNG state on all workers
    workers.py        broadcast, any and gather between workers
    exit_status.py    exit statuses for the launcher and Slurm's requeue
    file_sharding.py  whether workers shard a data set by files or by rows

The launcher needs no TensorFlow: `cluster.py`, `slurm.py`, `addresses.py`,
`job_token.py`, `channel.py`, `handshake.py`, `entrance.py`, `rendezvous.py`,
`links.py`, `watch.py`, `loss.py` and `exit_status.py` do not import it.
"""
