"""Exit statuses with a meaning, for whoever starts a training process."""

EXIT_PREEMPTED = 75
"""Ended by SIGTERM after saving: run the same command again to go on.

75 is `EX_TEMPFAIL` of BSD's `sysexits.h`: "temporary failure; try later".
"""
