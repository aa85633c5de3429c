"""Predicts speed-up and efficiency on more GPUs.

    python -m kerasmgpu.plan --step_seconds=0.3 --batch_size_per_replica=64 \
        --parameters=25.6e6 --link=nvlink3 --link_between=100gbit

predicts them for 2 to 1024 replicas from one replica's step, and names the
bottleneck. The arithmetic is in `kerasmgpu.plan.model`.

* `links`: rates and latencies of links, with their sources;
* `published`: published measurements, to check the predictions;
* `sources`: one replica's step, from a file or a run;
* `measuring`: that run, in its process;
* `planning`: one prediction per number of replicas;
* `tables`: the table and the plot;
* `__main__`: the command.
"""
