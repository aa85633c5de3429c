"""Random programs do on the replicas of several workers what one device does."""

import pytest


@pytest.mark.slow
@pytest.mark.job_case(2, 2, "random 11 30")
def test_two_workers_of_two_devices_do_what_one_device_does(job):
    for count, failed in job.workers:
        assert not failed, "\n".join(failed)
        assert count > 0
