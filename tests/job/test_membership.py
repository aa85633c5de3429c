"""What a worker says about its error before it ends."""

import pytest
import tensorflow as tf

from kerasmgpu.job import membership


class Watch:
    """Of a job in which nobody is lost."""

    def wait_for_a_loss(self, seconds):
        return False


@pytest.mark.parametrize(
    "message, is_told",
    [
        ("Collective instance 150 expected type 0 but got type 3", True),
        ("Collective ops is aborted by: something else", False),
    ],
)
def test_workers_in_different_collectives_are_told_so(message, is_told, caplog):
    error, reported = tf.errors.InternalError(None, None, message), []
    membership._report(
        Watch(), lambda *given: reported.append(given), type(error), error, None
    )
    assert reported == [(type(error), error, None)]
    assert ("only one of them runs" in caplog.text) == is_told
