"""Jobs whose workers build a model in parts hold the first worker's values."""

import keras
import numpy as np
import pytest

from tests.workers.built_program import network


@pytest.mark.job_case(2, 1, "built")
def test_values_are_those_of_one_device_with_the_first_workers_seed(job):
    keras.utils.set_random_seed(1)
    model, narrow = network(), network("bfloat16")
    expected = {
        "weights": model.get_weights(),
        "narrow": [one.astype("float32") for one in narrow.get_weights()],
    }
    model.quantize("int8")
    expected["quantized"] = model.get_weights()
    expected["predicted"] = model.predict(np.ones([4, 6], "float32"), verbose=0)
    for outcomes in job.workers:
        for name in ("weights", "narrow", "quantized"):
            for found, one in zip(outcomes[name], expected[name], strict=True):
                np.testing.assert_array_equal(found, one, name)
        np.testing.assert_allclose(
            outcomes["predicted"], expected["predicted"], rtol=1e-5
        )
