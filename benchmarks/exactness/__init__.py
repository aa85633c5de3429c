"""Tables of programs that must train on replicas the model of one device.

    python -m benchmarks.exactness --table=models --names=gpt,gru

From the inside out:

* `data`: made-up rows; `registry`: the programs of all tables;
* `parity`: small cases, one for each way in which replicas may differ;
* `models`, `keras_io`, `keras_hub`: programs by subject;
* `keras_own`: Keras's own tests under a strategy;
* `harness`: runs a program; distances of two runs;
* `comparison`: a program on one device and on replicas;
* `processes`: child processes, and the file of results;
* `tables`: the tables and their Markdown; `__main__`: the command.
"""
