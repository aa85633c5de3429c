"""Exit statuses of a training process for launchers and schedulers."""

EXIT_PREEMPTED = 75
"""Ended by SIGTERM after saving: run the same command again to continue.

75 is `EX_TEMPFAIL` of BSD's `sysexits.h`: "temporary failure; try later".
"""
