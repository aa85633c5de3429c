"""Keras's own tests, run under a strategy: see `__main__.py`."""
