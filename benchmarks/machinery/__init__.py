"""Costs of a job's own machinery by its number of workers.

__main__.py   the command: runs jobs, prints the table
launcher.py   our launcher, which records what it sends and its CPU time
worker.py     a worker without TensorFlow: meets the others, watches, ends
record.py     what a process records of itself
table.py      records to figures, figures to a table
"""
