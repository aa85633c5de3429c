"""Shared parts of commands (start, child processes, plots); scaling report."""
