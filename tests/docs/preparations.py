"""What the tests do around the code of a page; the page gives all its names."""

ARGUMENTS = {"docs/input.md": ["kerasmgpu", "shuffled"]}
"""Arguments of the command line, for pages whose program reads them."""

AFTERWARDS = {
    "docs/audit.md": "assert [found for _, found in audit.findings] == ['equal']",
    "docs/checkpoints.md": "assert first_step == 0",
    "docs/clusters.md": "assert list(pathlib.Path('checkpoints').iterdir())",
    "docs/finders.md": """
assert 1e-7 < found.suggestion < found.minimum < 10
assert pathlib.Path("losses.png").exists()
""",
    "docs/five_minutes.md": "assert len(loaded.layers) == len(model.layers)",
    "docs/partition.md": """
np.testing.assert_allclose(loss, train_step(images, labels), rtol=1e-5)
""",
    "docs/speed.md": """
clock = Clock()
model.fit(x, y, batch_size=100, callbacks=[clock])
assert len(clock.times) == 10
""",
    "docs/throughput.md": """
assert len(pathlib.Path("throughput.jsonl").read_text().splitlines()) == 3
""",
    "docs/report.md": """
assert sorted(path.name for path in pathlib.Path("runs/1").iterdir()) == [
    "history.jsonl", "run.json", "steps.jsonl", "times.jsonl"
]
""",
    "docs/prove.md": "build()",
    "docs/verify.md": "build().fit(*data())",
    "recipes/polynomial/README.md": "assert y.numpy().tolist() == [8, 23, 48]",
}
"""Where a snippet defines something, or leaves something: what must be so.

They may use `pathlib`, `np` and the page's names.
"""

CHANGES = {
    "benchmarks/README.md": {"ResNet50(": "MobileNet(alpha=0.25, "},
    "docs/checkpoints.md": {"epochs=90": "epochs=3"},
    "docs/clusters.md": {"epochs=90": "epochs=3"},
    "docs/input.md": {"64 * 300": "64 * 20"},
}
"""What is smaller when the tests run it."""
