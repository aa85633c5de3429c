"""The jobs of other launchers, by the variables that these really set.

Recorded from Open MPI 5.0.11, MPICH 5.0.2, torchrun of PyTorch 2.13,
`accelerate launch` 1.15, DeepSpeed 0.19.8 and Horovod 0.28.1, each with two
processes on one machine; others are as their documentation has them.
"""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.job.cluster import from_environment, is_first_worker

OPEN_MPI = {
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_UNIVERSE_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-vm-12481@1",
    "PMIX_RANK": "1",
}
MPICH = {
    "HYDI_CONTROL_FD": "7",
    "MPI_LOCALNRANKS": "2",
    "MPI_LOCALRANKID": "1",
    "PMI_FD": "9",
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
}
TORCHRUN = {
    "GROUP_RANK": "0",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "36675",
    "RANK": "1",
    "TORCHELASTIC_RUN_ID": "fc81ef6c-fafa-46ef-b654-5183b1db1a7a",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "WORLD_SIZE": "2",
}
DEEPSPEED = {
    "CROSS_RANK": "0",
    "CROSS_SIZE": "1",
    "LOCAL_RANK": "1",
    "LOCAL_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29555",
    "RANK": "1",
    "WORLD_SIZE": "2",
}
HOROVODRUN = {
    "HOROVOD_CROSS_RANK": "0",
    "HOROVOD_CROSS_SIZE": "1",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
    "HOROVOD_GLOO_RENDEZVOUS_PORT": "29824",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_RANK": "1",
    "HOROVOD_SIZE": "2",
}
MVAPICH = {
    "MV2_COMM_WORLD_LOCAL_RANK": "1",
    "MV2_COMM_WORLD_LOCAL_SIZE": "2",
    "MV2_COMM_WORLD_RANK": "1",
    "MV2_COMM_WORLD_SIZE": "2",
}
LAUNCHERS = {
    "mpirun of Open MPI": OPEN_MPI,
    "mpiexec of MPICH": MPICH,
    "torchrun": TORCHRUN,
    "deepspeed": DEEPSPEED,
    "horovodrun": HOROVODRUN,
    "mpirun_rsh of MVAPICH2": MVAPICH,
}
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_NODELIST": "gpu[01-02]",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "gpu[01-02]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_PROCID": "1",
}


def changed(environ, **values):
    """Variables with others for those whose names end so; `None`: without."""
    made = dict(environ)
    for ending, value in values.items():
        (name,) = [n for n in environ if n.endswith(ending)]
        made[name] = value
        if value is None:
            del made[name]
    return made


@pytest.mark.parametrize("environ", LAUNCHERS.values(), ids=LAUNCHERS)
def test_all_on_one_machine_meet_there(environ):
    worker = from_environment(environ)
    assert (worker.index, worker.num_workers) == (1, 2)
    assert not worker.is_first
    assert worker.meeting.is_local
    assert worker.meeting.host == "127.0.0.1"
    assert worker.addresses == ()


@pytest.mark.parametrize("environ", LAUNCHERS.values(), ids=LAUNCHERS)
def test_separate_models_are_trained_if_asked_for(environ):
    assert from_environment(environ | {"KERASMGPU_SEPARATE": "1"}) is None


@pytest.mark.parametrize("size", ["_SIZE", "NRANKS"])
def test_a_single_process_is_alone(size):
    environ = OPEN_MPI if size == "_SIZE" else MPICH
    names = [n for n in environ if n.endswith(size)]
    rank = [n for n in environ if n.endswith("_RANK")]
    one = environ | dict.fromkeys(names + ["PMI_SIZE"], "1")
    assert from_environment(one | dict.fromkeys(rank, "0")) is None


def test_the_first_worker_is_known_without_its_address(monkeypatch):
    for name, value in changed(TORCHRUN, GROUP_RANK="3").items():
        monkeypatch.setenv(name, value)
    assert not is_first_worker()
    monkeypatch.setenv("RANK", "0")
    assert is_first_worker()


SEVERAL = {
    "mpirun": OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "4"},
    "mpiexec": MPICH | {"PMI_SIZE": "4"},
    "horovodrun": HOROVODRUN | {"HOROVOD_SIZE": "4"},
}
"""Jobs on two machines, of launchers that name none of them."""


@pytest.mark.parametrize("environ", SEVERAL.values(), ids=SEVERAL)
def test_several_machines_need_the_name_of_the_first(environ):
    with pytest.raises(InputError, match="which machine the first") as error:
        from_environment(environ)
    text = str(error.value)
    assert "Set MASTER_ADDR to the machine of rank 0" in text
    assert "KERASMGPU_SEPARATE=1" in text
    assert "=4" in text.partition("Received:")[2]
    assert "\n" not in text
    worker = from_environment(environ | {"MASTER_ADDR": "gpu01"})
    assert (worker.meeting.host, worker.meeting.is_local) == ("gpu01", False)
    assert worker.meeting.port == 29500


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_another_machine_does_not_reach_a_loopback_address(host):
    environ = TORCHRUN | {"WORLD_SIZE": "4", "MASTER_ADDR": host}
    with pytest.raises(InputError, match=f"Received: MASTER_ADDR={host}"):
        from_environment(environ)


def test_torchrun_on_two_machines():
    there = TORCHRUN | {"WORLD_SIZE": "4", "RANK": "3", "MASTER_ADDR": "a"}
    meeting = from_environment(there).meeting
    assert (meeting.host, meeting.port, meeting.is_local) == ("a", 36675, False)


def test_variables_set_by_hand():
    by_hand = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}
    assert from_environment(by_hand).meeting.host == "a"
    on_one = from_environment(by_hand | {"MASTER_ADDR": "localhost"})
    assert on_one.meeting.is_local
    with pytest.raises(InputError, match="torchrun started this process"):
        from_environment({"RANK": "1", "WORLD_SIZE": "2"})


def test_a_size_without_a_rank_is_no_worker():
    """Batch scripts export it for the programs that they start."""
    assert from_environment({"WORLD_SIZE": "8", "MASTER_ADDR": "a"}) is None


def test_accelerate_with_one_process_is_alone():
    """It sets an address, but no rank."""
    environ = {"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1"}
    assert from_environment(environ | {"MASTER_PORT": "29500"}) is None


@pytest.mark.parametrize(
    "inner, outer, index",
    [
        (TORCHRUN, OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "0"}, 1),
        (TORCHRUN, SLURM | {"SLURM_PROCID": "0", "SLURM_NODEID": "0"}, 1),
        (OPEN_MPI, SLURM | {"SLURM_PROCID": "0", "SLURM_NODEID": "0"}, 1),
        (MPICH, SLURM | {"SLURM_PROCID": "0", "SLURM_NODEID": "0"}, 1),
    ],
)
def test_the_innermost_launcher_counts(inner, outer, index):
    """Launchers start their processes through those of the machine."""
    worker = from_environment(outer | inner)
    assert worker.index == index
    assert worker.meeting is not None


@pytest.mark.parametrize(
    "also",
    [
        {"PMI_RANK": "1", "PMI_SIZE": "2"},  # srun --mpi=pmi2
        {"PMIX_RANK": "1", "PMIX_NAMESPACE": "slurm.pmix.77.0"},
        {"RANK": "1", "WORLD_SIZE": "2"},  # By hand, from Slurm's.
    ],
)
def test_srun_with_ranks_for_mpi_is_slurms_job(also):
    worker = from_environment(SLURM | also)
    assert worker == from_environment(SLURM)
    assert worker.meeting is None


@pytest.mark.parametrize(
    "also",
    [
        {"PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm.pmix.77.0"},
        {"PMI_RANK": "0", "PMI_SIZE": "1"},
    ],
)
@pytest.mark.parametrize(
    "step",
    [
        {"SLURM_STEP_ID": "4294967290"},
        {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
    ],
)
def test_shells_under_slurm_are_no_workers(also, step):
    assert from_environment(SLURM | step | also) is None


def test_pmix_alone_does_not_tell_how_many_there_are():
    with pytest.raises(InputError, match="doesn't tell how many") as error:
        from_environment({"PMIX_RANK": "0", "PMIX_NAMESPACE": "1"})
    assert "Set RANK, WORLD_SIZE and MASTER_ADDR" in str(error.value)


def test_a_list_of_addresses_comes_before_all_launchers():
    both = {
        "TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, '
        '"task": {"type": "worker", "index": 0}}'
    }
    assert from_environment(OPEN_MPI | both).addresses == ("a:1", "b:1")


@pytest.mark.parametrize(
    "environ, message",
    [
        (OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "x"}, "WORLD_RANK must be a numb"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "-2"}, "WORLD_SIZE must be a num"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "2"}, "must be below OMPI_COMM_W"),
        (HOROVODRUN | {"HOROVOD_LOCAL_SIZE": "3"}, "HOROVOD_LOCAL_SIZE=3"),
        (TORCHRUN | {"MASTER_PORT": "http"}, "MASTER_PORT must be a port"),
        (TORCHRUN | {"MASTER_PORT": "65536"}, "Received: '65536'"),
        (TORCHRUN | {"WORLD_SIZE": "0"}, "RANK must be below WORLD_SIZE"),
    ],
)
def test_malformed_variables(environ, message):
    with pytest.raises(InputError, match=message) as error:
        from_environment(environ)
    assert "\n" not in str(error.value)
