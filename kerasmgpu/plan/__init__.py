"""Will more GPUs help, and how many?

    python -m kerasmgpu.plan --step_seconds=0.3 --batch_size_per_replica=64 \
        --parameters=25.6e6 --link=nvlink3 --link_between=100gbit

predicts speed-up and efficiency for 2 to 1024 replicas from one replica's step,
and says what is the limit. The arithmetic is `kerasmgpu.plan.model`.

* `links`: rates and latencies of links, with their sources;
* `published`: tables of others, to hold the predictions against;
* `sources`: one replica's step, from flags, files or a run;
* `measuring`: that run, in its process;
* `planning`: one prediction per number of replicas;
* `tables`: the table and the plot;
* `__main__`: the command.
"""
