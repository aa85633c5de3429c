"""Keras's own tests, as they lie in its wheel, on 2 replicas.

Each file runs in a process of its own, first on one device and then under a
strategy, whose replicas are logical CPU devices. A test that passes on one device
must pass under the strategy, and all that its models return, train and keep there
must be what they have on one device (`numbers.py`). `explanations.py` explains the
failures that remain. All of it takes an hour.
"""
