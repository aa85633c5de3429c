"""Which settings are counted, and in how many processes."""

import pytest

from kerasmgpu.memory import counting


def fewest(usable, limit):
    """The micro-batches of the answer, and those tried; fewer bytes in more."""
    tried = []

    def row(micro_batches):
        tried.append(micro_batches)
        total = 40 + 800 // micro_batches
        held = {"weights": 30, "slots": 10, "built": 30, "loaded": 45}
        return {
            **held,
            "micro_batches": micro_batches,
            "total": total,
            "fits": max(total, 45) <= usable,
        }

    best = counting._fewest_that_fit(row, 16, limit)
    return best["micro_batches"], tried


def test_micro_batches_are_tried_until_one_fits():
    assert fewest(240, None) == (4, [1, 2, 4])
    assert fewest(240, 240) == (4, [1, 2, 4])


def test_no_micro_batches_are_tried_where_none_can_fit():
    assert fewest(50, 50) == (16, [1, 2, 4, 8, 16])  # 45 bytes are held.
    assert fewest(44, 44) == (1, [1])
    assert fewest(44, None) == (16, [1, 2, 4, 8, 16])


@pytest.mark.parametrize(
    "per_worker, per_machine, replicas, expected",
    [
        (None, None, 64, 64),
        (None, 8, 8, 8),
        (None, 8, 12, 1),
        (None, 8, 1024, 1),
        (4, 8, 1024, 4),
    ],
)
def test_replicas_of_each_process(per_worker, per_machine, replicas, expected):
    job = {
        "replicas_per_worker": per_worker,
        "replicas_per_machine": per_machine,
    }
    assert counting._per_worker(job, replicas) == expected


def test_what_fits_is_not_divided_further(monkeypatch):
    counted = []

    def rows(step, job, shard, number):
        counted.append((shard, number))
        fits = number == 4 or shard == "optimizer" and number == 2
        return [{"replicas": number, "fits": fits}]

    monkeypatch.setattr(counting, "_counted", rows)
    shards = ["none", "optimizer", "weights"]
    job = {"shard": shards, "replicas": [1, 2, 4, 8], "until_it_fits": True}
    counting._rows(None, job)
    assert counted == [
        *(("none", number) for number in (1, 2, 4, 8)),
        *(("optimizer", number) for number in (2, 8)),
        ("weights", 8),
    ]
    counted.clear()
    counting._rows(None, {**job, "until_it_fits": False})
    assert len(counted) == 12
