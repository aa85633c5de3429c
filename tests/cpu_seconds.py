"""A plugin that prints where the tests' CPU time goes, room by room."""

import collections
import os

import pytest

_KEY = "cpu_seconds"
_MOST, _LEAST = 20, 60.0
_began = {}


def _spent():
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return sum(times[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid):
    _began[nodeid] = _spent()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    if call.when == "teardown" and item.nodeid in _began:
        seconds = _spent() - _began.pop(item.nodeid)
        item.user_properties.append((_KEY, seconds))
    return (yield)


def pytest_terminal_summary(terminalreporter):
    """Prints CPU seconds by room, and the tests that take most."""
    by_test = {
        report.nodeid: dict(report.user_properties)[_KEY]
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "teardown"
        and _KEY in dict(report.user_properties)
    }
    if sum(by_test.values()) < _LEAST:
        return
    rooms = collections.Counter()
    for name, seconds in by_test.items():
        path = name.partition("::")[0].removeprefix("tests/")
        rooms[path.partition("/")[0]] += seconds
    said = ", ".join(f"{room} {s:.0f}" for room, s in rooms.most_common())
    write = terminalreporter.write_line
    terminalreporter.section("CPU seconds")
    write(f"{sum(rooms.values()):.0f} in all: {said}")
    for name, seconds in collections.Counter(by_test).most_common(_MOST):
        write(f"{seconds:6.1f} {name}")
