"""All images that a run leaves out are listed in its folder."""

import types

import pytest
import tensorflow as tf

from kerasmgpu.recipes import alexnet
from kerasmgpu.recipes.alexnet import left_out
from kerasmgpu.recipes.shared import run_folder


def open_folder(path, resume=False):
    settings = types.SimpleNamespace(resume=resume, output_dir=str(path))
    return run_folder.RunFolder(path, settings)


def test_names_are_kept_over_a_start_and_the_first_is_printed(tmp_path, capsys):
    folder = open_folder(tmp_path)
    folder.start()
    for names in ((b"b.jpg", b"a.jpg"), (b"a.jpg", b"odd\n\x1b\xff.jpg")):
        left_out_images = left_out.LeftOutImages(folder)
        for name in names:
            left_out_images.add(name)
        left_out_images.on_epoch_end(0)
    assert (tmp_path / "left_out.txt").read_text().splitlines() == [
        "a.jpg",
        "b.jpg",
        r"odd\n\x1b\udcff.jpg",
    ]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("left out: b.jpg")
    assert line.endswith(f"all are listed in {tmp_path}/left_out.txt")


def test_without_a_folder_nothing_is_written(capsys):
    left_out_images = left_out.LeftOutImages(types.SimpleNamespace(path=None))
    left_out_images.add(b"a.jpg")
    left_out_images.on_epoch_end(0)
    assert left_out_images.names == {"a.jpg"}
    assert "with --output_dir" in capsys.readouterr().out


@pytest.mark.slow
def test_the_recipe_lists_them(tmp_path):
    for k in range(24):
        image = tf.fill([64, 64, 3], tf.constant(10 * k, tf.uint8))
        path = tmp_path / "data" / "ab"[k % 2] / f"{k:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(image).numpy())
    broken = [tmp_path / "data" / "a" / "02.png", tmp_path / "data/b/05.png"]
    for path in broken:
        path.write_bytes(b"no image")
    result = alexnet.run(
        data_path=str(tmp_path / "data"),
        image_size=16,
        width=0.02,
        epochs=1,
        num_replicas=1,
        output_dir=str(tmp_path / "run"),
    )
    listed = (tmp_path / "run" / "left_out.txt").read_text().splitlines()
    assert listed == sorted(map(str, broken))
    assert result.figures["left_out"].startswith("2, such as ")
