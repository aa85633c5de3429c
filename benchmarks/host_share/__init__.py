"""Where the CPU time of a step goes: kernels, communication, or the host.

__main__.py   the command: a process for each setting, then a table
child.py      trains a workload, and profiles ten steps
shares.py     from a profile's events to the parts of a step
"""
