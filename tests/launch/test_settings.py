"""Command lines that can and can't be meant; and the plan of a dry run."""

import sys

import pytest
from absl import flags

from kerasmgpu.errors import InputError
from kerasmgpu.job.addresses import Host
from kerasmgpu.launch import __main__ as command_line
from kerasmgpu.launch import dry_run, settings
from tests.job.test_launchers import OPEN_MPI

CPU = {"CUDA_VISIBLE_DEVICES": "-1"}
GPUS = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
TWO_HOSTS = "a:4,b:2"


def check(words=(sys.executable,), environ=CPU, **keywords):
    return settings.check(words, environ=environ, **keywords)


def test_launchers_can_tell_each_other_of_any_command():
    text = check((sys.executable, "café", "\udcff"), num_workers=1).shared()
    assert text.encode().decode().endswith("café \\udcff")


def test_one_worker_per_gpu():
    assert check(environ=GPUS).num_workers == 4
    assert check(environ=GPUS, devices_per_worker=2).num_workers == 2
    assert check(num_workers=3).hosts == (Host("127.0.0.1", 3),)


def test_one_worker_on_the_cpu_which_is_told():
    checked = check()
    assert checked.num_workers == 1
    assert checked.note == (
        "There is no GPU here (CUDA_VISIBLE_DEVICES=-1), so there is one "
        "worker, on the CPU; --num_workers=2 starts two"
    )
    assert check(num_workers=1).note == check(environ=GPUS).note == ""


def test_separate_jobs_are_started_if_asked_for():
    environ = CPU | OPEN_MPI | {"KERASMGPU_SEPARATE": "1"}
    assert check(environ=environ, num_workers=2).num_workers == 2


@pytest.mark.parametrize(
    "line, own, command",
    [
        ("train.py --epochs=5", "", "train.py --epochs=5"),
        ("--num_workers=2 train.py --x", "--num_workers=2", "train.py --x"),
        ("--num_workers 2 -m a.b -x", "--num_workers 2", "-m a.b -x"),
        ("--isolate -v=1 python t.py", "--isolate -v=1", "python t.py"),
        ("--isolate -- -m t --port=1", "--isolate", "-m t --port=1"),
        ("-- train.py --rank=1", "", "train.py --rank=1"),
        ("train.py --porting=1 -- --port=1", "", None),
        ("train.py --help --seed 3", "", None),
        ("--num_workers", "--num_workers", ""),  # Its value is missing.
        ("", "", ""),
    ],
)
def test_where_the_command_begins(line, own, command):
    known = flags.FlagValues()
    command_line.define_flags(known)
    expected = line.split() if command is None else command.split()
    assert command_line.split(line.split(), known) == (own.split(), expected)


@pytest.mark.parametrize(
    "word", ["--num_workers=4", "--port", "--dry_run", "--noisolate"]
)
def test_flags_that_the_program_may_have_too(word):
    known = flags.FlagValues()
    command_line.define_flags(known)
    message = f"^{word} after train.py may be for the launcher or for the prog"
    with pytest.raises(InputError, match=message):
        command_line.split(["--timeout_seconds=3", "train.py", word], known)


@pytest.mark.parametrize(
    "environ",
    [
        {"JOB_COMPLETION_INDEX": "1"},
        {"SLURM_STEP_ID": "0", "SLURM_NODEID": "1"},
        {
            "SLURM_STEP_ID": "0",
            "SLURM_NODEID": "1",
            "SLURM_STEP_NUM_TASKS": "2",
        },
    ],
)
def test_rank_is_found(environ):
    assert check(hosts=TWO_HOSTS, environ=CPU | environ).rank == 1


def test_modules_and_scripts_run_with_this_python(tmp_path):
    script = tmp_path / "train.py"
    script.touch()
    for words in (["-m", "json.tool"], [str(script), "--x"]):
        assert check(words, num_workers=1).command == (sys.executable, *words)


@pytest.mark.parametrize(
    "keywords, message",
    [
        (
            {"environ": GPUS, "devices_per_worker": 5},
            "need 5 GPUs. GPUs here: 4",
        ),
        ({"environ": CPU | OPEN_MPI}, "process 1 of 2 that another launcher"),
        ({"num_workers": 2, "hosts": TWO_HOSTS}, "either --hosts"),
        ({"hosts": TWO_HOSTS}, "--rank=0 on a, --rank=1 on b"),
        ({"num_workers": 1, "rank": 1}, "--rank=1 needs --hosts"),
        (
            {
                "hosts": TWO_HOSTS,
                "environ": CPU
                | {
                    "SLURM_STEP_ID": "0",
                    "SLURM_NODEID": "1",
                    "SLURM_STEP_NUM_TASKS": "8",
                },
            },
            "ntasks-per-node=1",
        ),
        ({"num_workers": 5, "environ": GPUS}, "need 5 GPUs. GPUs here: 4"),
        (
            {"num_workers": 1, "min_workers": 1},
            "--max_restarts=0; give at least 1",
        ),
        ({"num_workers": 1, "timeout_seconds": 0.0}, "timeout_seconds"),
        ({"num_workers": 1, "grace_seconds": -1.0}, "grace_seconds"),
        ({"num_workers": 1, "worker_log_dir": __file__}, "is not a folder"),
    ],
)
def test_wrong_command_lines(keywords, message):
    with pytest.raises(InputError, match=message) as error:
        check(**keywords)
    assert "\n" not in str(error.value)


def test_plan_of_a_dry_run():
    checked = check(
        hosts="a:1,b:2",
        rank=1,
        environ=GPUS,
        devices_per_worker=2,
        first_worker_port=30000,
    )
    assert list(dry_run.rows(checked)) == [
        ("0", "0", "a:30000", "(found there)"),
        ("1", "1", "b:30000", "GPU 4, 5"),
        ("2", "1", "b:30001", "GPU 6, 7"),
    ]


def test_dry_run_starts_nothing(tmp_path, capsys):
    file = tmp_path / "written"
    words = [sys.executable, "-c", f"open({str(file)!r}, 'w')"]
    assert (
        command_line.run(words, dry_run=True, environ=CPU, num_workers=1) == 0
    )
    assert "workers: 1" in capsys.readouterr().out
    assert not file.exists()
