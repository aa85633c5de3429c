"""Costs of the rendezvous, watch and launcher by the number of workers.

__main__.py   the command: runs jobs, prints the table
launcher.py   our launcher, with a record of its traffic and CPU time
worker.py     a worker without TensorFlow: rendezvous, watch, exit
record.py     a process's record of times, CPU time and traffic
table.py      converts records to figures and formats them
"""
