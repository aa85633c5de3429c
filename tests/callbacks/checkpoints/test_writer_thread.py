import threading

import pytest

from kerasmgpu.callbacks.checkpoints.writer_thread import BackgroundWriter


def test_one_write_at_a_time():
    writer, release, order = BackgroundWriter(), threading.Event(), []

    def first():
        release.wait(10)
        order.append("first")

    writer.submit(first)
    assert order == []
    threading.Timer(0.05, release.set).start()
    writer.submit(lambda: order.append("second"))
    writer.wait()
    assert order == ["first", "second"]


@pytest.mark.parametrize("look", ["wait", "submit", "check"])
def test_an_error_reaches_the_caller_once(look):
    writer = BackgroundWriter()

    def fail():
        raise OSError("full")

    writer.submit(fail)
    writer._thread.join()
    with pytest.raises(OSError, match="full"):
        getattr(writer, look)(*([print] if look == "submit" else []))
    writer.wait()
