"""The page, as it is read."""

import datetime
import json

import pytest

from kerasmgpu.report import page, run_files, units
from tests import console
from tests.report import samples
from tests.report.pages import parse

NOW = datetime.datetime(2030, 1, 2, 3, 4)


def render(*folders):
    return page.render(run_files.read(folders), NOW)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        samples.complete(folder / "one", 1, 1, 1000.0),
        samples.complete(folder / "two", 2, 1, 1800.0),
        samples.complete(folder / "four", 4, 2, 3000.0, offset=0.1),
    ]


def test_the_figures_are_those_of_the_files(three):
    found = parse(render(three[1]))
    lines = (three[1] / "history.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    losses = found.tables["Loss"]
    assert losses[0] == ["epoch", "two", "two (validation)"]
    assert losses[1:] == [
        [str(r["epoch"]), units.plain(r["loss"]), units.plain(r["val_loss"])]
        for r in records
    ]
    assert found.tables["Examples per second"][1:] == [
        [str(r["epoch"]), units.plain(r["examples_per_second"])]
        for r in records
    ]
    assert found.tables["What replicas send in a step"] == [
        ["run", "in all", "gradients, all-reduce", "statistics, all-reduce"],
        ["two", "4.003 MiB", "4 MiB (100 %)", "3 KiB (0.1 %)"],
    ]
    assert found.tables["Layers of two"] == [
        ["layer", "a replica holds", "and sends in a step", "by"],
        ["up", "5 MiB", "0 B", "–"],
        ["down", "1 MiB", "3 KiB", "all-reduce, all-gather"],
    ]
    assert found.tables["Variables that a replica holds"] == [
        ["run", "in all", "weights", "optimizer", "others"],
        ["two", "12 MiB", "4 MiB (33 %)", "8 MiB (67 %)", "512 B (< 0.1 %)"],
    ]
    shares = [
        row[1] for row in found.tables["Share of the steps by their time"]
    ]
    assert shares[1:4] == ["2.0 %", "14 %", "40 %"]
    assert ["learning rate", "0.001"] in found.tables["All settings"]
    devices = found.tables["Devices over the whole run"]
    assert [row[0] for row in devices[1:]] == [
        "two, GPU:0",
        "two, GPU:1",
        "two, process",
    ]
    assert devices[1][2] == "40 GiB"
    assert devices[1][5] == "10 %"
    assert "finished, epoch 12 of 12" in found.text
    assert "Gpu" not in found.text


def test_runs_share_axes_and_differences_are_marked(three):
    text = render(*three)
    found = parse(text)
    assert found.tables["Loss"][0] == [
        "epoch",
        *("one", "one (validation)", "two", "two (validation)"),
        *("four", "four (validation)"),
    ]
    differ = found.tables["Settings that differ"]
    assert differ[0] == ["setting", "one", "two", "four"]
    assert ["replicas", "1", "2", "4"] in differ
    assert ["rows per replica and step", "1,024", "512", "256"] in differ
    assert len(found.find("div", "marked")) == 1
    alike = found.tables["The same in all runs"]
    assert ["model", "autoencoder"] in alike
    scaling = found.tables["Scaling: the batch of a step"]
    assert [row[-2:] for row in scaling] == [
        ["speed-up", "efficiency"],
        ["1.00", "100 %"],
        ["1.80", "90 %"],
        ["3.00", "75 %"],
    ]
    assert (
        "communication, waiting for other workers" in found.tables["Times"][0]
    )
    # Each run has one color everywhere.
    for color, name in enumerate(("one", "two", "four")):
        assert f'<span class="chip run-{color}">{name}</span>' in text


def test_it_is_one_file_that_asks_nobody(three):
    text = render(*three)
    found = parse(text)
    assert all(a.startswith(("#", "data:,")) for a in found.addresses)
    assert {a[1:] for a in found.addresses if a[0] == "#"} == found.ids
    assert "default-src 'none'" in text
    for word in ("http:", "https:", "url(", "@import", "fetch("):
        assert word not in text
    assert "prefers-color-scheme: dark" in text
    for canvas in found.find("div", "canvas"):
        assert canvas["aria-label"]


def test_names_and_values_are_text(tmp_path):
    folder = samples.complete(tmp_path / "<script>alert(1)<")
    samples.write(folder, run_json=samples.facts(model="<b>&\"'</b>"))
    text = render(folder)
    assert "<script>alert" not in text
    assert "<b>&" not in text
    assert "<b>&\"'</b>" in parse(text).text


@pytest.mark.parametrize(
    "files, expected",
    [
        ({"history_jsonl": ""}, "No epoch has ended yet."),
        ({"run_json": {}}, "No run.json or flags.txt says"),
        ({"result_json": {}}, "No times.jsonl"),
        ({"history_jsonl": '{"epoch": 1, "loss": NaN}\n'}, "epoch 1"),
        ({"history_jsonl": '{"epoch": 1, "loss": 1e999}\n'}, "epoch 1"),
        ({"history_jsonl": '{"epoch": 1, "loss": "x"}\n'}, "epoch 1"),
        ({"history_jsonl": samples.epochs(1)}, "9,000"),
        ({"run_json": samples.facts(devices=3)}, "devices has an unexpected"),
        ({"run_json": {"sent_per_step": [3, {}]}}, "What is left out"),
        ({"run_json": {"replicas": 2, "sent_per_step": [{}]}}, "None"),
        ({"run_json": samples.facts(layers=[3, {"by": 3}])}, "Layers of"),
        ({"run_json": samples.facts(replicas=-5, workers=1)}, "autoencoder"),
        ({"run_json": {}, "steps_jsonl": [{"edges": 1}]}, "No steps.jsonl"),
        ({"run_json": {}, "devices_jsonl": [{"time": 1}]}, "Devices"),
        (
            {"run_json": {}, "devices_jsonl": [{"time": "x"}]},
            "No devices.jsonl",
        ),
        ({"run_json": {}, "devices_jsonl": "\x00\n"}, "left out: line 1"),
    ],
)
def test_poor_folders_have_a_page(tmp_path, files, expected):
    found = parse(render(samples.write(tmp_path / "run", **files)))
    assert expected in found.text
    # A section without anything is a line at the end.
    assert found.find("p", "missing") == []
    for title in ("Where the time goes", "Devices"):
        name = title.split()[-2 if title[0] == "W" else 0].lower()
        assert (name in found.ids) != (f"{title}: No" in found.text)


def test_a_damaged_file_is_one_line_and_the_rest_stays(three, tmp_path):
    folder = samples.complete(tmp_path / "run")
    (folder / "history.jsonl").write_bytes(b"\xff\xff")
    found = parse(render(folder, three[0]))
    assert found.text.count("history.jsonl can't be read") == 1
    assert "Devices over the whole run" in found.tables
    assert found.tables["Loss"][0] == ["epoch", "one", "one (validation)"]


def test_the_title_is_the_model_and_the_path(three):
    text = render(three[0])
    assert "<h1>autoencoder</h1>" in text
    assert str(three[0]) in parse(text).text


def test_no_two_parts_have_a_color(tmp_path):
    sent = [
        {"kind": "all_reduce", "purpose": f"purpose {n}", "bytes": 1000 - n}
        for n in range(20)
    ]
    folder = samples.complete(tmp_path / "run")
    samples.write(folder, run_json=samples.facts(sent_per_step=sent))
    (head, row) = parse(render(folder)).tables["What replicas send in a step"]
    assert head[2:] == [
        *(f"purpose {n}, all-reduce" for n in range(11)),
        "the rest",
    ]
    assert row[-1].startswith(units.data(sum(1000 - n for n in range(11, 20))))


def test_columns_of_dashes_are_left_out(tmp_path):
    lines = [
        {"time": 100.0 + n, "device": "CPU:0", "memory_bytes": 5 << 30}
        for n in range(3)
    ]
    folder = samples.complete(tmp_path / "run")
    samples.write(folder, devices_jsonl=lines)
    head = parse(render(folder)).tables["Devices over the whole run"][0]
    assert head == ["device", "peak memory"]


def test_a_run_that_goes_on_says_so(tmp_path):
    facts = samples.facts()
    del facts["ended"]
    folder = samples.write(
        tmp_path, run_json=facts, history_jsonl=samples.epochs(3)
    )
    assert "not finished: epoch 3 of 12" in parse(render(folder)).text


def command(*arguments, cwd):
    return console.run("report", *arguments, folder=cwd)


def test_the_command_prints_the_path(three, tmp_path):
    done = command(str(three[0]), cwd=tmp_path)
    assert done.stdout == f"{three[0] / 'report.html'}\n"
    done = command(*map(str, three), cwd=tmp_path)
    assert done.stdout == "report.html\n"
    assert "one, two, four" in (tmp_path / "report.html").read_text("utf-8")
    done = command(str(three[0]), "--output=other.html", cwd=tmp_path)
    assert done.stdout == "other.html\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "other.html",
        "report.html",
    ]
