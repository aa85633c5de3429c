"""The job that tests of several files share."""

import pytest

from tests.workers.shared_job import Case, outcome


def case_of(item):
    """A test's `Case`, or `None`."""
    marker = item.get_closest_marker("job_case")
    return marker and Case(*marker.args)


@pytest.fixture
def job(request, shared_folder):
    """`Outcome` of the case that the test's marker `job_case` names.

    A job runs the cases of all tests that are to be run, and no others; once
    for all of pytest's processes.
    """
    cases = [case_of(item) for item in request.session.items]
    wanted = [case for case in cases if case]
    return outcome(case_of(request.node), wanted, shared_folder)
