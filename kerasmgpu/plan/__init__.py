"""Predicts speed-up and efficiency on more GPUs.

    python -m kerasmgpu.plan --step_seconds=0.3 --batch_size_per_replica=64 \
        --parameters=25.6e6 --link=nvlink3 --link_between=100gbit

predicts them for 2 to 1024 replicas from one replica's step, and names the
bottleneck. The arithmetic is in `kerasmgpu.plan.step_time`.

* `link_rates`: rates and latencies of links, with their sources;
* `published`: published measurements, to check the predictions;
* `sources`: reads or measures one replica's step;
* `measuring`: the child process that measures it;
* `mesh_counting`: the child process that counts a step on a mesh;
* `mesh_time`: the arithmetic of meshes;
* `scaling_prediction`: one prediction per number of replicas;
* `tables`: the table and the plot;
* `__main__`: the command.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
