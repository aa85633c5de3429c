"""A job of several workers: cluster resolution, rendezvous, failure detection.

    cluster.py        the workers' addresses and this worker's index: `TF_CONFIG`
    slurm.py          the same from Slurm's variables
    launchers.py      the same from those of mpirun, torchrun and others
    introduction.py   the exchange of addresses that these don't tell
    addresses.py      parsing of hosts and addresses
    ports.py          free ports
    port_claims.py    a job's claim to a port
    rivals.py         workers of two jobs with the same variables
    worker_processes.py  processes of this machine that are workers
    job_token.py      the shared secret of a run's workers
    channel.py        messages between processes
    handshake.py      mutual authentication of a connection by the token
    entrance.py       a listening port with a thread per new connection
    gathering.py      reports of all workers to the first one, and its answer
    rendezvous.py     the rendezvous of the workers before TensorFlow starts
    shared_gpus.py    division of the GPUs that several workers see
    membership.py     a worker joins its job, once TensorFlow runs
    attempts.py       workers give up a step together, to run it again
    places.py         where each worker is, and for which one the others wait
    lockstep.py       detection of workers that wait in different collectives
    links.py          connections with heartbeats, served by one thread
    watch.py          detection of lost workers
    loss.py           the log line about a lost worker, and its parser
    seeds.py          the same RNG state on all workers
    workers.py        broadcast, any and gather between workers
    agreement.py      whether workers plan and write the same
    exit_status.py    exit statuses for the launcher and Slurm's requeue
    file_sharding.py  whether workers shard a data set by files or by rows

The launcher needs no TensorFlow: only `agreement.py`, `file_sharding.py`,
`membership.py`, `seeds.py` and `workers.py` import it.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
