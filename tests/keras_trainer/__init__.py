"""Keras's own trainer tests, run under a strategy: see `__main__.py`."""
