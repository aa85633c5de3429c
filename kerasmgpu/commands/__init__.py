"""Shared parts of commands (start, child processes, the user's model and data,
plots); scaling report."""
