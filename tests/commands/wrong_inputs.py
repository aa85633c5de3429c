"""Wrong inputs to all commands, and what runs them quickly.

    python -m tests.commands.wrong_inputs            # prints what each says

Each case is run in a fork of this process, which has imported what commands
share, but not TensorFlow: dozens of them take less time than one start of it.
"""

import json
import os
import pathlib
import runpy
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from typing import NamedTuple

import absl.app  # noqa: F401 - What forks need not import again; so below.
import numpy  # noqa: F401
import rich.table  # noqa: F401

import kerasmgpu.__main__
from kerasmgpu.commands import (  # noqa: F401
    command_line,
    plots,
    references,
)
from kerasmgpu.recipes.shared import shared_flags  # noqa: F401

_SECONDS = 120


class Case(NamedTuple):
    """A command line, and words of the one line that it must end with.

    Args:
        arguments: String, what is typed behind `kerasmgpu`, or behind
            `python -m` for `benchmarks`.
        message: String, a part of that line.
        environ: Dictionary of environment variables. Defaults to none.
        tensorflow: Boolean, whether only TensorFlow can tell.
    """

    arguments: str
    message: str
    environ: dict = {}
    tensorflow: bool = False


def _cluster(task_type="worker", index=0, worker=("a:1", "b:1")):
    return json.dumps(
        {
            "cluster": {"worker": worker},
            "task": {"type": task_type, "index": index},
        }
    )


_SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "0",
    "SLURM_JOB_ID": "1",
    "SLURM_NTASKS": "2",
    "SLURM_NODEID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
_MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
_LAUNCH = "launch --num_workers=2 --dry_run"
_ROWS = "--step_seconds=1 --batch_size_per_replica=8"
_STEP = f"plan {_ROWS} --parameters=1"
_OF_FUNCTIONS = (
    *("check", "compile --output=new", "find_batch_size"),
    *("find_learning_rate", "flops", "memory", "prove", "verify"),
    "plan --batch_size_per_replica=1",
)


def _functions(reference, message):
    """Cases of a function that no command finds."""
    for command in _OF_FUNCTIONS:
        flag = "--module=" if command.startswith("plan ") else ""
        yield Case(f"{command} {flag}{reference}", message)


CASES = (
    # The console command.
    Case("autoencode", "expected autoencoder"),
    Case("frobnicate", "Received: frobnicate; kerasmgpu --help lists"),
    Case("autoencoder --epochs=1 --epochs=2", "--epochs is given 2 times"),
    Case(
        f"{_LAUNCH} --num_workers=3 -- true", "--num_workers is given 2 times"
    ),
    Case("--frobnicate", "Received: --frobnicate"),
    Case("ünïcode", "Received: ünïcode"),
    # Flags of all recipes, told by abseil's parser.
    Case("autoencoder --epochs=abc", "--epochs: must be an integer. Received"),
    Case("autoencoder --epochs=1e3", "--epochs: must be an integer. Received"),
    Case("autoencoder --epochs=", "Received: nothing"),
    Case("autoencoder --epochs", "Missing value for flag --epochs"),
    Case("autoencoder --epoch=3", "Did you mean: epochs"),
    Case("autoencoder --resume=maybe", "--resume: must be true or false."),
    Case("autoencoder --rows=film", "<user|item>. Received: film"),
    Case("autoencoder epochs=3", "Received: epochs=3"),
    Case("autoencoder --learning_rate=\x1b[31mred", r"\x1b[31mred"),
    Case("autoencoder --flagfile=missing", "No such file or directory"),
    Case("autoencoder --flagfile=folder", "Is a directory"),
    Case("autoencoder --flagfile=binary", "a file of flags must be text"),
    Case("autoencoder --flagfile=itself.flags", "can't include itself"),
    # Numbers out of range.
    Case("autoencoder --epochs=0", "--epochs: 0 is not an integer in the ran"),
    Case(
        "autoencoder --epochs=99999999999999999999", "range [1, 1000000000]. R"
    ),
    Case("autoencoder --num_packs=99999999999", "--num_packs: 99999999999 is"),
    Case("autoencoder --warmup_steps=-1", "--warmup_steps: -1 is not an"),
    Case("autoencoder --warmup_steps=99999999999", "--warmup_steps: 999"),
    Case(
        "autoencoder --learning_rate=nan",
        "a finite number above 0. Received: nan",
    ),
    Case("autoencoder --learning_rate=-inf", "number above 0. Received: -inf"),
    Case("autoencoder --seed=4294967296", "range [0, 4294967295]"),
    Case("autoencoder --seed=-1", "--seed: -1 is not"),
    Case("autoencoder --held_out=1", "--held_out: 1.0 is not a finite"),
    Case("autoencoder --hidden_units=10,,5", "--hidden_units must be integers"),
    Case("autoencoder --hidden_units=200000", "integers from 1 to 100000"),
    Case("autoencoder --virtual_devices=1000000", "in the range [1, 256]"),
    # Flags that contradict each other, and names that are none.
    Case("autoencoder --steps=2 --epochs=2", "--steps and --epochs say the"),
    Case("autoencoder --preset=fast", "--preset must be one of autorec"),
    Case("autoencoder --resume", "--resume needs the folder"),
    Case("autoencoder --output_dir=empty", "--output_dir can't be written"),
    Case("autoencoder --output_dir=full", "--output_dir is not empty"),
    Case("autoencoder --output_dir=full --resume", "found no run"),
    Case("autoencoder --dataset=ml-2m", "ml-100k, ml-1m"),
    Case("autoencoder --test_path=u1.test", "--test_path needs --data_path"),
    # Object stores, and paths that must be local.
    Case("autoencoder --output_dir=s4://b/r", "--output_dir: s4://"),
    Case(
        "autoencoder --output_dir=s3://b/r --tensorboard",
        "--tensorboard needs a local --output_dir",
    ),
    Case("autoencoder --data_path=s4://b/r", "Received: s4://b/r"),
    Case("convnet --config=s4://b/c.yaml", "Received: s4://b/c.yaml"),
    Case("checkpoint show s4://b/r", "Received: s4://b/r"),
    Case("checkpoint show s3:/b/r", "pass the string 's3://b/r'"),
    Case("checkpoint convert binary s4://b/x.npz", "Received: s4://b/x.npz"),
    Case("report s4://b/r", "Received: s4://b/r"),
    Case("report run --output=s4://b/x.html", "--output: s4://"),
    Case("verify json:loads --output=s4://b/x", "--output: s4://"),
    Case("doctor --output=s4://b/x", "--output: s4://"),
    Case("compile json:loads --output=s3://b/r", "--output takes a local path"),
    Case(f"{_STEP} --output_dir=s3://b/r", "--output_dir takes a local path"),
    Case("plan --from=s4://b/x.json", "Received: s4://b/x.json"),
    Case(
        "scaling_report autoencoder --output_dir=s3://b/r",
        "output_dir takes a local path",
    ),
    Case(
        f"{_LAUNCH} --worker_log_dir=s3://b/l -- true",
        "worker_log_dir takes a local path",
    ),
    # Ratings.
    Case("autoencoder --data_path=missing", "--data_path must be a file"),
    Case("autoencoder --data_path=empty", "empty is empty; expected one"),
    Case("autoencoder --data_path=folder", "folder has no ratings file"),
    Case("autoencoder --data_path=binary", "Line 1 of binary is not a rating"),
    Case("autoencoder --data_path=broken.zip", "not a valid zip file"),
    Case("autoencoder --data_path=other.zip", "other.zip has no ratings file"),
    Case("autoencoder --data_path=tabs", r"Received: '2\t1\tx\x1b'; expected"),
    Case("autoencoder --data_path=large_ids", "ids from 0 to 2147483647"),
    Case("autoencoder --data_path=twice", "Lines 1 and 3 of twice both rate"),
    Case(
        "autoencoder --data_path=u1.test --test_path=u1.test",
        "Test ratings can't be training ratings",
    ),
    # The other recipes.
    Case("polynomial --data_path=words.csv", "line 2: expected two numbers"),
    Case("polynomial --data_path=binary", "is not a CSV file of numbers"),
    Case("polynomial --data_path=folder", "folder: Is a directory"),
    Case("polynomial --steps_per_epoch=0", "--steps_per_epoch: 0 is not"),
    Case("polynomial --num_replicas=999", "num_replicas=999", {}, True),
    Case("deepconn --words=0", "--words: 0 is not an integer"),
    Case("deepconn --words=1000000000000", "in the range [4, 100000]"),
    Case("deepconn --vocabulary=9999999999999", "--vocabulary: 9999999999999"),
    Case("deepconn --data_path=text", "text, which has no review (line 1"),
    Case("deepconn --data_path=broken.gz", "The reviews can't be read"),
    Case("deepconn --placement=dual --num_replicas=2", "trains one replica"),
    Case("alexnet --image_size=4", "--image_size: 4 is not an int"),
    Case("alexnet --num_classes=99999999999", "[2, 10000000]. Rec"),
    Case("alexnet --width=inf", "--width: inf is not a finite"),
    Case("alexnet --warmup_epochs=2 --warmup_steps=2", "Received: both"),
    Case("alexnet --data_path=one_class", "two classes at least", {}, True),
    Case("alexnet --network=lenet", "alexnet|resnet50|wide_resnet28"),
    Case("alexnet --batch_sizes=16,x", "--batch_sizes must be two"),
    Case("alexnet --num_seeds=0", "--num_seeds: 0 is not an integer"),
    Case("image_batch_study", "now: kerasmgpu alexnet --preset=batch_study"),
    Case("convnet --config=missing.yaml", "missing.yaml: No such file or"),
    Case("convnet --config=list.yaml", "list.yaml must have keys"),
    Case("convnet --restore=folder", "--restore needs --predictions"),
    Case("convnet --predictions=p.txt", ".npy"),
    # The launcher.
    Case("launch --num_workers=2", "There is no command for the workers"),
    Case(f"{_LAUNCH} -- no_such_program", "the program 'no_such_program'"),
    Case(f"{_LAUNCH} no_such_program --x", "the program 'no_such_program'"),
    Case(f"{_LAUNCH} true --rank=1", "--rank=1 after true may be for"),
    Case(f"{_LAUNCH} true", "process 1 of 2 that another", _MPIRUN),
    Case(f"{_LAUNCH} -- python missing.py", "Can't find the file 'missing.py'"),
    Case("launch --num_workers=0 -- true", "num_workers must be an integer of"),
    Case("launch --num_workers=99999999 -- true", "at most 4096 workers"),
    Case("launch --hosts=a:x --rank=0 -- true", "such as a:4,b:4 or"),
    Case("launch --hosts=a:1,a:1 --rank=0 -- true", "Received twice: a"),
    Case("launch --hosts=me@a:1,b:1 --rank=0 -- true", "without a user"),
    Case("launch --hosts=[::1:2 --rank=0 -- true", "Received: '[::1:2'"),
    Case("launch --hosts=, --rank=0 -- true", "--hosts ends with a comma"),
    Case("launch --hosts=a:1,b:1 --rank=2 -- true", "ranks 0 to 1. Received"),
    Case(
        "launch --hosts=a:1,b:1 -- true",
        "The rank of this machine is not known",
    ),
    Case(f"{_LAUNCH} --first_worker_port=65535 -- true", "Ports end at 65535"),
    Case(f"{_LAUNCH} --port=0 -- true", "port must be an integer of at least"),
    Case(f"{_LAUNCH} --timeout_seconds=nan -- true", "timeout_seconds must be"),
    Case(f"{_LAUNCH} --min_workers=3 -- true", "more than all workers"),
    Case(f"{_LAUNCH} --worker_log_dir=empty -- true", "--worker_log_dir=empty"),
    # Environment variables of a job.
    Case("polynomial", "TF_CONFIG: expected valid JSON", {"TF_CONFIG": "{"}),
    Case("polynomial", "a JSON object", {"TF_CONFIG": "[1, 2]"}),
    Case("polynomial", "index 0 to 1", {"TF_CONFIG": _cluster(index=7)}),
    Case("polynomial", "type to be one", {"TF_CONFIG": _cluster("ps")}),
    Case(
        "polynomial",
        "Received: 'b'",
        {"TF_CONFIG": _cluster(worker=("a:1", "b"))},
    ),
    Case("polynomial", "Slurm: SLURM_NTASKS", {**_SLURM, "SLURM_NTASKS": "x"}),
    Case(
        "polynomial",
        "Received: 'n[1-'",
        {**_SLURM, "SLURM_STEP_NODELIST": "n[1-"},
    ),
    Case("polynomial", "must agree", {**_SLURM, "SLURM_NTASKS": "3"}),
    Case(
        "polynomial",
        "mpirun started this process as one of several, but doesn't tell",
        {**_MPIRUN, "OMPI_COMM_WORLD_SIZE": "4"},
    ),
    Case(
        "autoencoder --steps=1",
        "mpirun started this job on several machines: set KERASMGPU_JOB_TOKEN",
        {**_MPIRUN, "OMPI_COMM_WORLD_SIZE": "4", "MASTER_ADDR": "a"},
        True,
    ),
    Case("polynomial", "KERASMGPU_SEPARATE must", {"KERASMGPU_SEPARATE": "x"}),
    # Verify, plan, benchmark, scaling_report.
    *_functions("absent:build", "; run the command in the module's folder, or"),
    *_functions("mine:build", "mine.py has no function 'build'. It has biuld"),
    *_functions("mine.py:build", "mine.py has no function 'build'. It has"),
    Case("evidence", "evidence takes files of kerasmgpu.callbacks.Audit"),
    Case("evidence missing.json", "missing.json (No such file or directory)"),
    Case("prove a:b --replicas=3 --num_workers=2", "must be a multiple of num"),
    Case("prove a:b --gpu=X100", "gpu is one of P100-16GB, "),
    Case("prove a:b --shard=rows", "shard must be one of none, opt"),
    Case("prove a:b --shard_over=3", "shard_over must divide the number"),
    Case("prove a:b --recompute=auto", "makes a step fit a GPU. Received"),
    Case("prove a:b --micro_batches=0", "micro_batches must be an integer"),
    Case("prove a:b --steps=0", "steps must be an integer of at least 1"),
    Case("prove a:b --offload=weights", "offload must be one of none, opt"),
    Case("prove a:b --output=missing/out.json", "--output must be a file in"),
    Case("verify", "give one function"),
    Case("verify my_module", "such as my_module:build"),
    Case("verify missing.py:build", "no such file: missing.py"),
    Case("verify json:loads --data=x", "data must be MODULE:FUNCTION"),
    Case("verify text:build --replica_counts=2,x", "at least 2. Received"),
    Case("verify --steps=0 a:b", "steps must be an integer of at least 1"),
    Case("verify a:b --output=missing/out.json", "--output must be a file in"),
    Case("verify a:b --tolerance=nan", "tolerance must be a finite"),
    Case("verify a:b --timeout_seconds=-1", "timeout_seconds must be"),
    Case("verify a:b --seed=99999999999", "integer from 0 to 4294967295"),
    Case("verify a:b --shard=rows", "shard must be one of none, opt"),
    Case("verify a:b --float64=1.5", "--float64: must be true or false. R"),
    Case("verify a:b --float64 --tolerance=0", "tolerance must be a finite"),
    Case("check", "give one function"),
    Case("check missing.py:build", "no such file: missing.py"),
    Case("check json:loads --steps=0", "steps must be an integer of at least"),
    Case("check json:loads --shard=rows", "shard must be one of none, opt"),
    Case("check json:loads --virtual_devices=0", "virtual_devices must be an"),
    Case("check json:loads --output=missing/a.json", "--output must be a fil"),
    Case("checkpoint", "show CHECKPOINT, verify CHECKPOINT or convert SOURCE"),
    Case("checkpoint show a b", "is expected. Received: show a b"),
    Case("checkpoint repair folder", "is expected. Received: repair folder"),
    Case("checkpoint show empty", "empty is damaged: File is no"),
    Case("checkpoint show missing", "no such file or folder. Received: miss"),
    Case("checkpoint verify folder", "directory of a run that has some"),
    Case("checkpoint convert missing new", "no such file or folder. Received"),
    Case("checkpoint convert binary new.keras", "binary is damaged: "),
    Case("checkpoint convert binary new.pt", "must end in .npz, .weights.h5"),
    Case("checkpoint convert binary missing/a.npz", "a folder that exists"),
    Case("compile", "give one function"),
    Case("compile missing.py:build", "give the folder for the programs"),
    Case("compile missing.py:build --output=new", "no such file: missing.py"),
    Case("compile json:loads --output=words.csv", "--output must be a folder"),
    Case("compile json:loads --output=new --steps=fit", "must be one of trai"),
    Case("find_batch_size", "give one function"),
    Case("find_batch_size a", "such as my_module:build"),
    Case("find_batch_size missing.py:build", "no such file: missing.py"),
    Case("find_batch_size text:build --low=x", "--low: must be an integer. R"),
    Case("find_batch_size json:loads --low=0", "low must be an integer of at"),
    Case(
        "find_batch_size json:loads --shard=rows",
        "shard must be one of none, opt",
    ),
    Case("find_batch_size json:loads --data=x", "data must be MODULE:FUNCTION"),
    Case("find_batch_size json:loads --target_efficiency=2", "up to 1. Receiv"),
    Case("find_learning_rate", "give one function"),
    Case("find_learning_rate missing.py:build", "no such file: missing.py"),
    Case("find_learning_rate json:loads --data=x", "data must be MODULE:FUN"),
    Case("find_learning_rate json:loads --steps=x", "--steps: must be an int"),
    Case("find_learning_rate json:loads --steps=5", "steps must be an integ"),
    Case("find_learning_rate json:loads --low=11", "high must be above low."),
    Case(
        "find_learning_rate json:JSONDecoder",
        "JSONDecoder() must return a compiled keras.Model",
        {},
        True,
    ),
    Case("flops", "give one function"),
    Case("flops missing.py:build", "no such file: missing.py"),
    Case("flops a:b --device=H1000", "device must be one of P100-16GB, V100"),
    Case("flops a:b --global_batch_size=0", "global_batch_size must be an int"),
    Case("flops json:loads --data=x", "data must be MODULE:FUNCTION"),
    Case("plan", "give the step of one replica in one way"),
    Case("plan --step_seconds=0.1", "--step_seconds needs --parameters"),
    Case(
        f"{_STEP} --device_memory=big --module=json:loads",
        "device_memory must be a size",
    ),
    Case(
        f"{_STEP} --output_dir=empty",
        "--output_dir must be a folder, new or existing",
    ),
    Case(
        f"{_STEP} --output_dir=empty/new",
        "--output_dir must be a folder, new or existing",
    ),
    Case(
        "alexnet --preset=alexnet_imagenet",
        "--preset=alexnet_imagenet needs --data_path: the folder",
    ),
    Case(f"{_STEP} --global_batch_size=8", "not both"),
    Case(f"{_STEP} --bytes=5", "not both"),
    Case(f"{_STEP} --module=a:b", "in one way"),
    Case(f"{_STEP} --device_memory=T4", "needs the m"),
    Case(f"plan {_ROWS} --parameters=-1", "parameters must be"),
    Case(f"{_STEP} more", "only flags are expected"),
    Case("plan --from=missing.json", "No such file or directory"),
    Case("plan --from=empty", "empty is neither a benchmark.json"),
    Case("plan --from=binary", "--from=binary can't be read"),
    Case("plan --from=folder", "--from=folder can't be read"),
    Case(
        "plan --step_seconds=inf --parameters=1 --global_batch_size=1",
        "step_seconds must be a finite number",
    ),
    Case(f"{_STEP} --link=usb", "--link must be one of pcie3"),
    Case(f"{_STEP} --overlap=nan", "overlap must be a number from 0 to 1"),
    Case(
        f"{_STEP} --replica_counts=1,two",
        "replica_counts must be an integer of at least 1",
    ),
    Case("doctor --virtual_devices=0", "virtual_devices must be an integer f"),
    Case("doctor --max_megabytes=x", "--max_megabytes: must be an integer"),
    Case("doctor --timeout_seconds=0", "timeout_seconds must be a finite"),
    Case("doctor gpus", "only flags are expected (--name=value)"),
    Case("doctor --data_dir=missing", "no such folder for --data_dir: miss"),
    Case("doctor --output=missing/a.txt", "--output must be a file in a"),
    Case("doctor --train", "for one machine", {"TF_CONFIG": _cluster()}),
    Case("benchmarks --workloads=chess", "must be some of deep_narrow"),
    Case("benchmarks --contenders=horovod", "must be some of one_device"),
    Case("benchmarks --replica_counts=0", "at least 1. Received"),
    Case("benchmarks --rounds=0", "rounds must be an integer"),
    Case("benchmarks --output_dir=full", "output_dir must be new or"),
    Case("benchmarks --timeout_seconds=nan", "timeout_seconds must be"),
    Case("report", "give the folder of a run"),
    Case("report missing", "no run in missing. Expected a folder with"),
    Case("report folder", "no run in folder. Expected a folder with"),
    Case("report binary", "no run in binary. Expected a folder with"),
    Case("report run run", "given twice. Received: run"),
    Case("report run --output=missing/x.html", "a folder that exists. Rec"),
    Case("report run --output=folder", "must be a file in a folder that"),
    Case("report --runs=3", "Unknown command line flag 'runs'"),
    Case("scaling_report", "give the name of a recipe first"),
    Case("scaling_report chess", "unknown recipe 'chess'"),
    Case("scaling_report autoencoder --replica_counts=1,x", "at least 1. Rec"),
    Case("scaling_report autoencoder --replica_counts=", "at least one number"),
    Case("scaling_report autoencoder --output_dir=full", "output_dir must be"),
    Case("scaling_report autoencoder --output_dir=empty", "output_dir must be"),
    Case(
        "scaling_report autoencoder -- --num_replicas=2",
        "--num_replicas=2 is set by the report itself",
    ),
)


def _make_files():
    """The files that cases name, in the current folder."""
    for name, content in {
        "empty": b"",
        "binary": bytes(range(256)) * 4,
        "text": b"hello\n",
        "broken.zip": b"PK\x03\x04 no zip",
        "broken.gz": b"\x1f\x8b no gzip",
        "tabs": b"1\t1\t5\n2\t1\tx\x1b\n",
        "large_ids": b"1,1,5\n99999999999,1,5\n",
        "twice": b"1,1,5\n1,2,5\n1,1,4\n",
        "u1.test": b"1\t1\t5\t8\n1\t2\t4\t8\n2\t1\t3\t8\n",
        "words.csv": b"x,y\n1,two\n",
        "list.yaml": b"- 1\n",
        "mine.py": b"import keras\ndef biuld(): pass\n",
        "itself.flags": b"--epochs=1\n--flagfile=itself.flags\n",
    }.items():
        pathlib.Path(name).write_bytes(content)
    with zipfile.ZipFile("other.zip", "w") as archive:
        archive.writestr("readme.txt", "nothing")
    for folder in ("folder", "full", "one_class/a", "run"):
        pathlib.Path(folder).mkdir(parents=True)
    for name in ("full/text", "one_class/a/1.png"):
        pathlib.Path(name).write_text("text")
    pathlib.Path("run/run.json").write_text("{}")


def run(cases):
    """Runs cases, one after the other.

    Args:
        cases: Sequence of `Case`.

    Yields:
        For each, a dictionary of `status`, `stdout`, `stderr`, `seconds` and
        `tensorflow`, whether it was imported.
    """
    folder, owner = tempfile.mkdtemp(), os.getpid()
    os.chdir(folder)
    try:
        _make_files()
        for number, case in enumerate(cases):
            began = time.monotonic()
            child = os.fork()
            if child == 0:
                _become(case, number)  # Ends this process.
            status = _wait(child, began + _SECONDS)
            yield {
                "status": status,
                "stdout": _read(f"{number}.stdout"),
                "stderr": _read(f"{number}.stderr"),
                "seconds": time.monotonic() - began,
                "tensorflow": pathlib.Path(f"{number}.tensorflow").exists(),
            }
    finally:
        if os.getpid() == owner:  # A fork ends on this way, too.
            shutil.rmtree(folder)


def _become(case, number):
    """Turns a fork into the command of a case."""
    import atexit

    for target, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(f"{number}.{name}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, target)
    home = os.getcwd()
    for variable in ("TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL"):
        os.environ.pop(variable, None)
    os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "KERASMGPU_CACHE": "cache"}
    os.environ |= case.environ

    @atexit.register
    def note():
        if "tensorflow" in sys.modules:
            pathlib.Path(home, f"{number}.tensorflow").touch()

    sys.argv = ["kerasmgpu", *case.arguments.split(" ")]
    if sys.argv[1] == "benchmarks":
        del sys.argv[0]
        runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
    kerasmgpu.__main__.main()
    sys.exit(0)


def _wait(child, deadline):
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _read(path):
    return pathlib.Path(path).read_text("utf-8", "backslashreplace")


def main():
    """Prints what each case says; with `--json`, for the test."""
    wanted = [argument for argument in sys.argv[1:] if argument != "--json"]
    cases = [c for c in CASES if all(w in c.arguments for w in wanted)]
    results = []
    for case, result in zip(cases, run(cases)):
        results.append(result)
        if "--json" not in sys.argv:
            mark = " TF" if result["tensorflow"] else ""
            print(
                f"$ {case.arguments!r} {case.environ or ''}\n"
                f"{result['status']}, {result['seconds']:.1f} s{mark}: "
                f"{result['stderr'].rstrip()}",
                flush=True,
            )
    if "--json" in sys.argv:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
