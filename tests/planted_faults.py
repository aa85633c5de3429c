"""Plants one fault at a time in a copy of the package, and runs the tests.

    python -m tests.planted_faults            # does the quick tier find them?
    python -m tests.planted_faults --all      # does the whole suite?
    python -m tests.planted_faults --names=mean_of_shares,checksum
    python -m tests.planted_faults --finders=build/finders.json

A fault is one line of the package that is changed. It says which tests are run:
those of its room. With `--finders`, all of them run, and the file has the tests
that find each fault, which are printed, too: where many find the same faults, some
say what others say.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
_SECONDS = 900


class Fault(NamedTuple):
    """One line of the package, and what it is changed to.

    Args:
        what: String, the fault in a few words.
        file: String, path below `kerasmgpu/`.
        line: String, the line without its indentation; it is there once.
        planted: String, what stands there instead.
        tests: String, the paths that pytest gets, separated by blanks.
    """

    what: str
    file: str
    line: str
    planted: str
    tests: str


FAULTS = {
    # hardware
    "unreachable_gpu": Fault(
        "a GPU that fell off its bus is left out without a word",
        "hardware/nvml.py",
        "if error.value == api.NVML_ERROR_NO_PERMISSION:",
        "if error.value != api.NVML_ERROR_GPU_IS_LOST:",
        "tests/hardware",
    ),
    "bridged_pairs": Fault(
        "pairs of NVLink bridges count as a ring of NVLinks",
        "hardware/gpu_links.py",
        "return len(reached) == len(topology) > 1",
        "return len(reached) > 1",
        "tests/hardware",
    ),
    "dead_sampler": Fault(
        "a GPU that is lost before its first sample ends the sampling thread",
        "callbacks/device_sampler.py",
        "sources[name] = functools.partial(_raise, error)",
        "raise",
        "tests/hardware",
    ),
    "same_of_all_workers": Fault(
        "doctor says the same of a machine once per worker",
        "doctor/examination.py",
        "told.add(of_host)",
        "told.discard(of_host)",
        "tests/hardware",
    ),
    # division
    "flat_tables": Fault(
        "tables with fewer rows than replicas are divided",
        "division.py",
        "return 0 if variable.shape[0] >= math.prod(self.axes) else None",
        "return self._longest_axis(variable)",
        "tests/strategies/test_sharding.py",
    ),
    "slot_apart": Fault(
        "memory divides slots without asking for their weight's axes",
        "memory/state_bytes.py",
        "of_weight = variable.weight and self.axes_to_shard(variable.weight)",
        "of_weight = None",
        "tests/test_division.py",
    ),
    # strategy_settings
    "forgotten_setting": Fault(
        "memory that is predicted in a run knows nothing of recompute",
        "memory/memory_advice.py",
        "asked = dict(vars(strategy.settings))",
        "asked = dict(vars(strategy.settings), recompute=None)",
        "tests/test_strategy_settings.py",
    ),
    # partitioner
    "short_share": Fault(
        "the first shares lack the row that is left over",
        "replica_arithmetic.py",
        "return share * (rows // num_shares) + minimum(share, rows % num_shares)",
        "return share * (rows // num_shares)",
        "tests/partitioner/rules tests/partitioner/test_programs.py",
    ),
    "short_computed_share": Fault(
        "shares of a batch of unknown size miss the rows that are left over",
        "partitioner/lowering/host_sizes.py",
        "return self.plus(self.times(share, each), left_over)",
        "return self.times(share, each)",
        "tests/partitioner/test_host_sizes.py",
    ),
    "assigns_at_once": Fault(
        "assignments wait for no other replica",
        "partitioner/lowering/update_together.py",
        "waiting = {n for n in step.updates if step.level[n] == level}",
        "waiting = set()",
        "tests/partitioner/passes/test_update_together.py",
    ),
    "waiting_computes": Fault(
        "the compute time counts how long collectives run",
        "partitioner/lowering/compute_time.py",
        "self._free_since = self._time([self._there(reference)])",
        "self._free_since = self._free_since",
        "tests/partitioner/test_compute_time.py",
    ),
    "mean_of_shares": Fault(
        "a mean over rows is not weighted by the rows of the share",
        "partitioner/lowering/operations.py",
        "mean = build.times_share(mean, rows, place)",
        "pass",
        "tests/partitioner/rules tests/partitioner/test_programs.py",
    ),
    "part_on_all": Fault(
        "a whole value becomes a part of a sum on every replica",
        "partitioner/lowering/emission.py",
        "its = [place for place, is_its in enumerate(is_first) if is_its]",
        "its = list(range(mesh.num))",
        "tests/partitioner/rules tests/partitioner/test_programs.py",
    ),
    "copies_at_once": Fault(
        "activations are computed again before a gradient needs them",
        "partitioner/step/recompute.py",
        "node.controls.append(gradient)",
        "pass",
        "tests/strategies/test_recomputation.py",
    ),
    "narrow_sums": Fault(
        "sums of float16 are made in float16",
        "partitioner/ir/instructions.py",
        "return tf.float32 if is_wide else tensor.dtype",
        "return tensor.dtype",
        "tests/partitioner/test_sums.py",
    ),
    "extremes_as_sums": Fault(
        "the minimum of parts is their maximum",
        "partitioner/lowering/replicas.py",
        '"min": "Minimum",',
        '"min": "Maximum",',
        "tests/partitioner/rules tests/partitioner/test_programs.py",
    ),
    "empty_shares": Fault(
        "the row that an empty share is given is not dropped",
        "partitioner/lowering/empty_shares.py",
        "begin = [int(n == axis) for n in range(rank)]",
        "begin = [0] * rank",
        "tests/partitioner/rules/test_windows.py",
    ),
    "short_halo": Fault(
        "a halo is a row short",
        "partitioner/rules/window_ranges.py",
        "return max(start, 0), min(end, self.rows)",
        "return max(start, 0), min(max(end - 1, start + 1), self.rows)",
        "tests/partitioner/rules/test_window_ranges.py",
    ),
    "padding_inside": Fault(
        "a device in the middle pads its rows, as the first and last do",
        "partitioner/lowering/windows.py",
        "around[axis] = part.padding",
        "pass",
        "tests/partitioner/test_window_programs.py",
    ),
    "rows_of_edges": Fault(
        "rows from the end of a part are looked for at its beginning",
        "partitioner/lowering/halos.py",
        "offset = first + self._rows - end if is_tail else first - start",
        "offset = first - start",
        "tests/workers/test_distribution.py",
    ),
    "same_draws": Fault(
        "each replica draws from the start of the generator's sequence",
        "partitioner/lowering/operations.py",
        "first = rows(build.sizes.start(sharded.rows, place))",
        "first = rows(build.sizes.scalar(0))",
        "tests/partitioner/rules tests/parity/test_parity.py",
    ),
    "rows_in_order": Fault(
        "gathered rows come in the order of the replicas' names",
        "partitioner/lowering/replicas.py",
        "return build.concat(parts, axis, place)",
        "return build.concat(parts[::-1], axis, place)",
        "tests/partitioner/rules tests/partitioner/test_sums.py",
    ),
    "whole_gradients": Fault(
        "gradients of keys and values are all-reduced where tokens are divided",
        "partitioner/planning/planner.py",
        "        return of_primal\n",
        "        return REPLICATED\n",
        "tests/strategies/test_divided_inputs.py",
    ),
    "no_maximum": Fault(
        "a softmax that is written out overflows for large scores",
        "partitioner/planning/written_out.py",
        'shifted = self.op("Sub", logits, self.reduced("Max", logits))',
        'shifted = self.op("Identity", logits)',
        "tests/partitioner/rules/test_written_out.py",
    ),
    "whole_blocks": Fault(
        "a line counts all rows of a dense layer that another axis divides",
        "partitioner/lowering/lines.py",
        "outer, inner = (local, inner) if is_outer else (outer, local)",
        "outer, inner = outer, inner if is_outer else local",
        "tests/strategies/test_divided_inputs.py",
    ),
    "owners_off_by_one": Fault(
        "the last row of a part is sent to the next replica",
        "partitioner/lowering/exchanges.py",
        "build.constant([bounds[1:-1]], reference.dtype, place)",
        "build.constant([[b - 1 for b in bounds[1:-1]]], reference.dtype, place)",
        "tests/partitioner/rules/test_tables.py",
    ),
    "counts_of_the_way_back": Fault(
        "vectors that come back are counted as the numbers that were sent",
        "partitioner/lowering/collectives.py",
        "entry = (own, other) if is_back else (other, own)",
        "entry = (other, own)",
        "tests/workers/test_tables.py",
    ),
    "order_of_turns": Fault(
        "collectives of micro-batches run in any order",
        "partitioner/lowering/turns.py",
        'node.input.extend(f"^{other}" for other in before)',
        "del node",
        "tests/partitioner/test_collective_order.py",
    ),
    "chains_of_places": Fault(
        "collectives of a group's line are chained by their place on it",
        "partitioner/lowering/function_writer.py",
        "return _HOSTS if place == HOST else self.device(place)",
        "return _HOSTS if place == HOST else str(self._place(place))",
        "tests/prove/test_order.py",
    ),
    "loose_loops": Fault(
        "prove takes one output of a loop for the whole of it",
        "prove/order.py",
        "sources |= {n for n in inputs if not self._step.bodies(nodes[n])}",
        "sources |= inputs",
        "tests/prove/test_order.py",
    ),
    "memory_of_kernels": Fault(
        "prove takes all that kernels of GPUs take for device memory",
        "prove/placement.py",
        "HOST if kernel is None or name in kernel.on_host else device",
        "HOST if kernel is None else device",
        "tests/prove/test_placement.py",
    ),
    "sizes_of_placeholders": Fault(
        "prove compiles clusters for any integers of the batch",
        "prove/clusters.py",
        'or operation.type == "Placeholder"',
        'or operation.type == "PlaceholderV2"',
        "tests/prove/test_clusters.py",
    ),
    "temporary_of_none": Fault(
        "memory doesn't know what XLA's clusters allocate",
        "memory/written_step.py",
        "return self.temporary[node.name]",
        "return 0",
        "tests/prove/test_clusters.py",
    ),
    "mixed_reductions": Fault(
        "sums and extremes of one level are one reduction",
        "partitioner/passes/group_sums.py",
        "kind = one.by, one.axis, one.outputs[0].is_local, in_turns",
        'kind = "sum", one.axis, one.outputs[0].is_local, in_turns',
        "tests/partitioner/passes/test_group_sums.py tests/partitioner/test_sums.py",
    ),
    "mixed_axes": Fault(
        "sums along two axes of a mesh are one reduction",
        "partitioner/passes/group_sums.py",
        "kind = one.by, one.axis, one.outputs[0].is_local, in_turns",
        "kind = one.by, 0, one.outputs[0].is_local, in_turns",
        "tests/strategies/test_layouts.py",
    ),
    "divided_twice": Fault(
        "an axis of a tensor is divided along two axes of a mesh",
        "partitioner/rules/compatible.py",
        "if is_one_axis and not are_nested(own, its):",
        "if False:",
        "tests/partitioner/rules/test_compatible.py",
    ),
    "wrong_lines": Fault(
        "replicas of a line are those next to each other",
        "partitioner/mesh.py",
        "found.setdefault(at, []).append(place)",
        "found.setdefault((place // self.num_along(along),), []).append(place)",
        "tests/partitioner/test_mesh.py",
    ),
    "one_line": Fault(
        "only the first line of a mesh communicates",
        "partitioner/lowering/lines.py",
        "kind == REPLICATED",
        "kind is not None",
        "tests/strategies/test_layouts.py",
    ),
    "whole_product": Fault(
        "each device computes the whole gradient of its part of a weight",
        "partitioner/planning/planner.py",
        "or self._divided(node)",
        "or None",
        "tests/strategies/test_layouts.py",
    ),
    "slow_axis": Fault(
        "bytes along a slow axis count as those along a fast one",
        "strategies/imagined_steps.py",
        "            number * self._slowness[over]\n",
        "            number\n",
        "tests/strategies/test_found_layout.py",
    ),
    "gathered_again": Fault(
        "a search counts weights once that are gathered again",
        "partitioner/passes/sending.py",
        "    gather_again(program)\n",
        "",
        "tests/strategies/test_found_layout.py",
    ),
    "kept_plans": Fault(
        "a plan is kept for whatever plans of other mesh axes",
        "partitioner/planning/planner.py",
        "objects = *kinds, *self._others.get(node, ()), target, *self._rows",
        "objects = *kinds, target, *self._rows",
        "tests/strategies/test_found_layout.py",
    ),
    "kept_stretches": Fault(
        "plans of a stretch of nodes are kept for whatever kinds it is given",
        "partitioner/planning/planner.py",
        "            *map(id, given),\n",
        "",
        "tests/strategies/test_found_layout.py",
    ),
    "unbounded_layout": Fault(
        "a layout that is found holds more than fits",
        "strategies/layout_search.py",
        "return max(cost.held - most, 0), cost.total()",
        "return 0, cost.total()",
        "tests/strategies/test_layout_search.py",
    ),
    "scattered_along_one_axis": Fault(
        "gradients of several mesh axes are one reduce-scatter",
        "partitioner/passes/scatter_early.py",
        "alike.setdefault(one.along(program.mesh), []).append(one)",
        "alike.setdefault((0,), []).append(one)",
        "tests/strategies/test_layouts.py",
    ),
    "outputs_as_planned": Fault(
        "layouts of outputs are not followed",
        "partitioner/planning/planner.py",
        "if axes is not None and not self._has_rows:",
        "if False:",
        "tests/strategies/test_layouts.py",
    ),
    "sum_of_each_group": Fault(
        "each group adds its sum over the rows that all groups have",
        "partitioner/lowering/emission.py",
        "is_first = [mesh.index(place, others) == 0 for place in range(mesh.num)]",
        "is_first = [True for place in range(mesh.num)]",
        "tests/strategies/test_shard_over.py",
    ),
    "sum_of_one_group": Fault(
        "a gradient is the sum of one group of replicas",
        "partitioner/passes/lower_reshards.py",
        "if made != wanted:",
        "if made == wanted:",
        "tests/strategies/test_shard_over.py",
    ),
    "table_of_a_group": Fault(
        "rows of a batch are exchanged for a table of another group",
        "partitioner/rules/tables.py",
        "if not isinstance(table, Sharded) or table.rows.over != kind.rows.over:",
        "if not isinstance(table, Sharded):",
        "tests/strategies/test_shard_over.py",
    ),
    "stale_variables": Fault(
        "steps go on with variables that were replaced",
        "partitioner/runtime/function.py",
        "if not next(iter(programs.values())).trace.is_stale",
        "if programs",
        "tests/strategies/test_auto_layouts.py",
    ),
    "late_scatter": Fault(
        "a gradient is scattered after what reads it",
        "partitioner/passes/scatter_early.py",
        "while not made.isdisjoint(instruction.inputs):",
        "while False:",
        "tests/partitioner/passes/test_scatter_early.py",
    ),
    "device_update": Fault(
        "what updates slots in host memory runs on devices",
        "partitioner/lowering/operation_writer.py",
        "return place == HOST or self.writer.cursor.on_host",
        "return place == HOST",
        "tests/partitioner/passes/test_offload.py",
    ),
    "sent_twice": Fault(
        "a gradient and its square are both copied to the host",
        "partitioner/passes/offload.py",
        "if len(sent) > 1 or self._is_sent(source):",
        "if False:",
        "tests/partitioner/passes/test_offload.py",
    ),
    "unsent_counts": Fault(
        "workers don't tell each other their numbers of rows",
        "partitioner/passes/localise_sizes.py",
        "and one.kind.rows in needed:",
        "and one.kind.rows not in needed:",
        "tests/partitioner/passes/test_localise_sizes.py",
    ),
    "unguarded_kernels": Fault(
        "kernels that fail for no rows see empty shares",
        "partitioner/passes/guard_empty_shares.py",
        "if operation.runs is Runs.ONCE:",
        "if operation.runs is not Runs.ONCE:",
        "tests/partitioner/passes/test_guard_empty_shares.py",
    ),
    "draws_of_workers": Fault(
        "workers don't agree on draws without a seed",
        "partitioner/passes/agree.py",
        "if node.is_stateful and Trait.COPIED not in traits:",
        "if node.is_stateful and Trait.COPIED in traits:",
        "tests/partitioner/passes/test_agree.py",
    ),
    "loops_alone": Fault(
        "a loop that needs all replicas runs on each by itself",
        "partitioner/passes/place_regions.py",
        "if together and (program.mesh.total > 1 or is_offloaded):",
        "if together and (program.mesh.total > 9 or is_offloaded):",
        "tests/partitioner/passes/test_place_regions.py",
    ),
    "gathered_once": Fault(
        "weights stay whole from the forward to the backward pass",
        "partitioner/passes/order_gathers.py",
        "if len(between) >= _APART:",
        "if len(between) >= 99 * _APART:",
        "tests/partitioner/passes/test_order_gathers.py",
    ),
    "phases_in_one": Fault(
        "micro-batches don't wait for each other's sums",
        "partitioner/passes/order_micro_batches.py",
        "return isinstance(instruction, Accumulate)",
        "return False",
        "tests/partitioner/passes/test_order_micro_batches.py "
        "tests/strategies/test_micro_batches.py",
    ),
    "late_effects": Fault(
        "side effects of the first phase wait for a later one",
        "partitioner/passes/order_micro_batches.py",
        "if instruction in may_wait and first:",
        "if first:",
        "tests/partitioner/passes/test_order_micro_batches.py "
        "tests/strategies/test_micro_batches.py",
    ),
    "sums_of_micro_batches": Fault(
        "each micro-batch reads a device's part of a sum",
        "partitioner/passes/lower_micro_batches.py",
        "if isinstance(kind, Partial) or is_of_variable(kind):",
        "if is_of_variable(kind):",
        "tests/strategies/test_micro_batches.py",
    ),
    "dead_stores": Fault(
        "an assignment that something reads in between is removed",
        "partitioner/step/updates.py",
        "if is_assignment and before in _controls(node, removed):",
        "if before in _controls(node, removed):",
        "tests/partitioner/test_updates.py",
    ),
    "hoisted_reads": Fault(
        "reads of a variable that a loop changes are moved in front of it",
        "partitioner/step/sharded_handles.py",
        "if any(Trait.READS not in user.traits for user in users):",
        "if not users:",
        "tests/partitioner/test_sharded_handles.py",
    ),
    "mean_of_first": Fault(
        "a sharded variable takes the first replica's value for the mean",
        "partitioner/runtime/sharded_assignments.py",
        "if variable.aggregation == tf.VariableAggregation.NONE:",
        "if variable.aggregation != tf.VariableAggregation.SUM:",
        "tests/strategies/test_sharded_assignments.py",
    ),
    "small_variables": Fault(
        "variables below the limit are sharded",
        "division.py",
        "or variable.num_bytes < self._min_bytes",
        "or variable.num_bytes < 0",
        "tests/strategies/test_sharding.py",
    ),
    "unsummed_axes": Fault(
        "an axis of text that no output has is not summed over",
        "partitioner/rules/notation.py",
        "sums = tuple(label for label in seen if label not in kept)",
        "sums = ()",
        "tests/partitioner/rules",
    ),
    "dearer_plans": Fault(
        "of several plans the one that sends most is taken",
        "partitioner/rules/table.py",
        "if least is None or rank < least:",
        "if least is None or rank > least:",
        "tests/partitioner/rules/test_table.py",
    ),
    "rounds_of_loops": Fault(
        "the rounds of a loop that begins above 0 are its limit",
        "partitioner/step/loop_rounds.py",
        "return None if end is None else cast(SizeLike, end - start)",
        "return None if end is None else cast(SizeLike, end)",
        "tests/flops/test_counting.py",
    ),
    "busy_buffers": Fault(
        "kernels write into buffers that others read",
        "memory/walk.py",
        "and buffer.references == inputs.count(buffer)",
        "and buffer.references",
        "tests/memory",
    ),
    # _keras and strategies
    "loss_by_replicas": Fault(
        "a loss outside of steps is divided by the number of replicas",
        "_keras/outside_steps.py",
        "in_none = tf.distribute.in_cross_replica_context()",
        "in_none = not tf.distribute.in_cross_replica_context()",
        "tests/_keras",
    ),
    "unread_logs": Fault(
        "logs are left out although a callback reads them",
        "_keras/unread_logs.py",
        "is_read = any(_looks(each, hooks) for each in callback_list.callbacks)",
        "is_read = False",
        "tests/_keras",
    ),
    "shared_reads": Fault(
        "copies of an update share what another one has changed",
        "partitioner/runtime/repeated.py",
        "if recorded and recorded.shared.isdisjoint(self._changed):",
        "if recorded:",
        "tests/partitioner/test_repeated.py",
    ),
    "copied_decay": Fault(
        "weights that are excluded decay with those of their shape",
        "_keras/repeated_updates.py",
        "lambda variable: [variable, self._use_weight_decay(variable)]",
        "lambda variable: [variable]",
        "tests/_keras",
    ),
    "restored_optimizer": Fault(
        "a checkpoint's optimizer states are not put back",
        "_keras/training_state.py",
        'if description["kind"] == kind',
        'if description["kind"] == kind != "optimizer"',
        "tests/callbacks",
    ),
    "shares_of_batches": Fault(
        "a replica on GPUs gets the next one's share of a batch",
        "strategies/shares.py",
        "ends = tf.cast(index, rows.dtype) + [0, 1]",
        "ends = tf.cast(index, rows.dtype) + [1, 2]",
        "tests/strategies",
    ),
    "copied_sums": Fault(
        "a metric's sum starts on every replica",
        "engine/variable_copies.py",
        "and variable.synchronization != tf.VariableSynchronization.ON_READ",
        "and variable.synchronization is not None",
        "tests/engine/test_variable_copies.py",
    ),
    "names_of_lengths": Fault(
        "two programs for XLA have one name",
        "partitioner/lowering/content_names.py",
        "digest = hashlib.sha256(content).hexdigest()[:24]",
        "digest = hashlib.sha256(b'').hexdigest()[:24]",
        "tests/partitioner/test_compilation.py",
    ),
    "draws_of_xla": Fault(
        "the form that replaces one without XLA draws XLA's random numbers",
        "partitioner/lowering/xla_clusters.py",
        "if build.program.form.is_xla_form and _draws(build, node):",
        "if False:",
        "tests/callbacks/test_choose_xla.py",
    ),
    "blocks_of_the_first_device": Fault(
        "all devices but the first compile at the same time",
        "partitioner/lowering/xla_first_run.py",
        'waits.append(f"^{calls[devices[place - 1]]}")',
        'waits.append(f"^{calls[devices[0]]}")',
        "tests/partitioner/test_xla_blocks.py",
    ),
    "blocks_by_codes_alone": Fault(
        "blocks that take other results count as equal",
        "partitioner/lowering/xla_blocks.py",
        "tuple(map(source, cluster.sources[number])),",
        "len(cluster.sources[number]),",
        "tests/partitioner/test_xla_blocks.py",
    ),
    "programs_of_others": Fault(
        "programs that were compiled for another version are taken",
        "engine/xla_filled_folders.py",
        "if not own.is_dir() and commands_of(folder) is not None:",
        "if not own.name and commands_of(folder) is not None:",
        "tests/engine/test_xla_filled_folders.py",
    ),
    "device_twice": Fault(
        "one device may be given twice",
        "engine/devices.py",
        "if len(set(names)) < len(names):",
        "if len(set(names)) > len(names):",
        "tests/engine",
    ),
    # callbacks
    "checksum": Fault(
        "the checksum of a checkpoint is not looked at",
        "callbacks/checkpoints/file_format.py",
        "if digest.hexdigest() != self.sha256:",
        "if not digest.hexdigest():",
        "tests/callbacks",
    ),
    "parts_of_other_saves": Fault(
        "a checkpoint may have a part of another save",
        "callbacks/checkpoints/stored.py",
        'if reader.sha256 != self.manifest["sha256s"][number]:',
        "if not reader.sha256:",
        "tests/callbacks",
    ),
    "parts_once": Fault(
        "each replica along a mesh axis writes the same part",
        "partitioner/runtime/sharded_variable.py",
        "unused = tuple(n for n, axis in enumerate(axes) if axis is None)",
        "unused = ()",
        "tests/callbacks",
    ),
    "kept_checkpoints": Fault(
        "the best checkpoint is deleted with the old ones",
        "callbacks/checkpoints/folder.py",
        "if path.name not in (name, best):",
        "if path.name != name:",
        "tests/callbacks",
    ),
    "late_listings": Fault(
        "checkpoints in a store are those that a listing has",
        "callbacks/checkpoints/store_folder.py",
        "return {*listed, *committed, *self._own}",
        "return {*listed, *self._own}",
        "tests/callbacks/checkpoints/test_store_folder.py",
    ),
    "callback_states": Fault(
        "states of callbacks are not put back",
        "callbacks/checkpoints/callback_states.py",
        'vars(callback).update(state["attributes"])',
        "vars(callback).update({})",
        "tests/callbacks",
    ),
    "traced_steps": Fault(
        "the throughput counts steps that were traced",
        "callbacks/stopwatch.py",
        "self._executions.append(Execution(start, end, steps, traced))",
        "self._executions.append(Execution(start, end, steps, False))",
        "tests/callbacks",
    ),
    "hooks_are_computation": Fault(
        "the time of callbacks between steps counts as computation",
        "_keras/timed_callbacks.py",
        "if clock.kind in BETWEEN_STEPS and not self._have_batch_hooks:",
        "if clock.kind in BETWEEN_STEPS:",
        "tests/callbacks",
    ),
    "cut_figures": Fault(
        "figures of a table are broken between words",
        "commands/fitted_table.py",
        "Cell(text, is_figure=column.is_right)",
        "Cell(text, is_figure=False)",
        "tests/commands",
    ),
    "backlog": Fault(
        "the pace counts an execution that traced",
        "callbacks/stopwatch.py",
        "if execution.traced or latest[-1].end - start > window_seconds:",
        "if latest[-1].end - start > window_seconds:",
        "tests/callbacks/test_stopwatch.py tests/callbacks/test_progress.py",
    ),
    "weights_at_the_end": Fault(
        "weights that the last update made not finite are not told",
        "callbacks/finite_search.py",
        "if not _is_finite(tf.convert_to_tensor(part)):",
        "if False:",
        "tests/callbacks/test_not_finite.py",
    ),
    # job and launch
    "strangers": Fault(
        "the proof of a job's token is not compared",
        "job/handshake.py",
        "return isinstance(one, str) and hmac.compare_digest(",
        "return isinstance(one, str) or hmac.compare_digest(",
        "tests/job",
    ),
    "frozen_worker": Fault(
        "heartbeats are never sent",
        "job/links.py",
        "self._next_beat = now + self._beat_seconds",
        "self._next_beat = now + 99 * self._timeout_seconds",
        "tests/job",
    ),
    "rivals_alike": Fault(
        "of two workers that claim one rank, the nearer one isn't preferred",
        "job/rivals.py",
        "if distances[nearest.key] < distances[given.key]:",
        "if nearest is None:",
        "tests/job/test_rivals.py",
    ),
    "unclaimed_port": Fault(
        "two jobs may have one port",
        "job/port_claims.py",
        "_held[port] = claimed",
        "claimed.close()",
        "tests/job/test_rivals.py",
    ),
    "lost_reason": Fault(
        "the line about a lost worker is pushed out by later lines",
        "launch/output.py",
        "self._loss = next(said, None)",
        "self._loss = None",
        "tests/launch/test_noise.py",
    ),
    "blamed_worker": Fault(
        "a worker that was asked to end is blamed",
        "launch/verdict.py",
        "by_itself = [e for e in ends if not e.was_asked]",
        "by_itself = list(ends)",
        "tests/launch/test_verdict.py",
    ),
    "signal_status": Fault(
        "a worker that a signal ended has another exit status",
        "launch/verdict.py",
        "return 128 - status if status < 0 else status",
        "return abs(status)",
        "tests/launch/test_verdict.py",
    ),
    # verify, plan, placement, arithmetic
    "lax_noise": Fault(
        "verify takes a variable's noise for that of all",
        "verify/rounding.py",
        "            (value, max(of_noise), comparison.tolerance)",
        "            (value, max(map(max, aside)), comparison.tolerance)",
        "tests/verify/test_rounding.py",
    ),
    "nudge_itself": Fault(
        "an audit takes the nudge of the weights for what it does",
        "callbacks/step_audit.py",
        "after[place] = after[place] - movement",
        "after[place] = after[place]",
        "tests/callbacks/test_audit.py",
    ),
    "audit_of_one_try": Fault(
        "an audit accuses a device that differed once",
        "callbacks/audit_verdict.py",
        "once = [d for d in odd if agree(results[most[0]], runs.on(d))]",
        "once: list[str] = []",
        "tests/callbacks/test_audit_verdict.py",
    ),
    "bound_to_a_device": Fault(
        "a step that runs again has nodes on the first replica's device",
        "partitioner/runtime/traced_function.py",
        'node.device = ""',
        "node.device = node.device",
        "tests/partitioner/test_one_device_step.py",
    ),
    "casts_by_hand": Fault(
        "casts by hand stay float32 where verify wants float64",
        "verify/float64_functions.py",
        "elif _named(dtype) not in _LESS or _is_of_a_library():",
        "elif _named(dtype) in _LESS or not _is_of_a_library():",
        "tests/verify/test_float_types.py",
    ),
    "exact_outputs": Fault(
        "a nudge leaves what layers give as it is",
        "verify/nudges.py",
        "tf.where(value == tf.round(value), value, moved)",
        "tf.where(value == value, value, moved)",
        "tests/verify/test_nudges.py",
    ),
    "threads": Fault(
        "threads trace at the same time",
        "partitioner/runtime/function.py",
        "        with making:\n            return self._known(",
        "        if making:\n            return self._known(",
        "tests/strategies/test_threads.py",
    ),
    "blind_verify": Fault(
        "verify takes any difference for rounding",
        "verify/comparison.py",
        "return distance is not None and distance > tolerance",
        "return distance is not None and distance > 1e9 * tolerance",
        "tests/verify/test_comparison.py tests/verify/test_faults.py",
    ),
    "ring": Fault(
        "a ring's all-reduce takes half of its messages",
        "plan/step_time.py",
        "messages = 2 * (num_members - 1)",
        "messages = num_members - 1",
        "tests/plan",
    ),
    "gradient_elsewhere": Fault(
        "the gradient of a placed layer is computed on the first device",
        "placement/gradients.py",
        "with tf.device(device):\n                gradients = tape.gradient(",
        "with tf.device(None):\n                gradients = tape.gradient(",
        "tests/test_placement.py",
    ),
    "warm_up": Fault(
        "the warm-up starts from 0",
        "schedules.py",
        "initial + (target - initial) * share,",
        "target * share,",
        "tests/test_schedules.py",
    ),
    "square_root": Fault(
        "the square-root rule scales linearly",
        "replica_arithmetic.py",
        '"sqrt": math.sqrt,',
        '"sqrt": float,',
        "tests/test_replica_arithmetic.py",
    ),
    # building and loading
    "unshifted_draw": Fault(
        "each part of a variable is drawn as the first one",
        "partitioner/runtime/initial_values.py",
        "counter = (counter + first // group * step) % (1 << 128)",
        "counter = (counter + first // group * 0) % (1 << 128)",
        "tests/partitioner/test_initial_values.py",
    ),
    "own_seed": Fault(
        "a worker draws its parts from its own seed",
        "partitioner/runtime/one_device.py",
        "return value.of(tf.convert_to_tensor(given))",
        "return value",
        "tests/workers/test_building.py",
    ),
    "file_in_memory": Fault(
        "the file of a model is held in memory",
        "_keras/stored_weights.py",
        "raise _ReadInPlaceError",
        "return True",
        "tests/_keras/test_stored_weights.py",
    ),
    # rooms beside training
    "half_line": Fault(
        "half a line of a killed run's record counts as damage",
        "callbacks/json_lines.py",
        'elif number < len(lines) or not line.startswith("{"):',
        "else:",
        "tests/callbacks/test_json_lines.py",
    ),
    "steps_last": Fault(
        "the table of a check has further steps last",
        "check/check_report.py",
        "order[place:place] = steps",
        "order += steps",
        "tests/check/test_check_report.py",
    ),
    "generator_read_on": Fault(
        "each step that is compiled reads a generator on",
        "compile/one_step.py",
        "is_read = isinstance(data, types.GeneratorType)",
        "is_read = False",
        "tests/compile",
    ),
    "fastest_alone": Fault(
        "the batch size that is recommended is the largest fast one",
        "finders/batch_size_search.py",
        "return min(size for size, speed in speeds.items() if speed >= least)",
        "return max(size for size, speed in speeds.items() if speed >= least)",
        "tests/finders/test_batch_size_search.py",
    ),
    "biased_average": Fault(
        "smoothed losses begin near 0",
        "finders/learning_rate_choice.py",
        "smoothed.append(average / (1 - smoothing**count))",
        "smoothed.append(average)",
        "tests/finders/test_learning_rate_choice.py",
    ),
    "multiplications_alone": Fault(
        "a product's additions are not counted",
        "flops/operations.py",
        "return sizes.product([2, *known.values()])",
        "return sizes.product([1, *known.values()])",
        "tests/flops/test_counting.py",
    ),
    "smaller_branch": Fault(
        "of a branch the smaller body is counted",
        "flops/counting.py",
        "most = max(walks, key=lambda walk: walk.size)",
        "most = min(walks, key=lambda walk: walk.size)",
        "tests/flops/test_counting.py",
    ),
    "markup": Fault(
        "names of runs are markup on the report's page",
        "report/html_parts.py",
        "return html.escape(str(text))",
        "return str(text)",
        "tests/report/test_page.py",
    ),
    "given_twice": Fault(
        "a run may be in a report twice",
        "report/run_files.py",
        "if path in resolved[:position]:",
        "if path in resolved[:0]:",
        "tests/report/test_run_files.py",
    ),
    "refused_again": Fault(
        "what a store refuses is tried again",
        "stores/store_path.py",
        "except (FileNotFoundError, PermissionError):\n                raise",
        "except FileNotFoundError:\n                raise",
        "tests/stores",
    ),
    "stale_listing": Fault(
        "a store's cache hides what other workers wrote",
        "stores/store_path.py",
        "system.invalidate_cache()",
        "system.exists",
        "tests/stores",
    ),
    "stored_rounding": Fault(
        "the rounding of stored values counts as a difference",
        "distances.py",
        "allowed = steps * unit * np.maximum(np.abs(one), np.abs(other))",
        "allowed = 0 * unit * np.maximum(np.abs(one), np.abs(other))",
        "tests/test_distances.py",
    ),
    "lost_signal": Fault(
        "a signal that nobody took is lost",
        "signals.py",
        "            if one in ours:\n                signal.raise_signal(one)",
        "            if one not in ours:\n                signal.raise_signal(one)",
        "tests/test_signals.py",
    ),
    "last_words": Fault(
        "the last, incomplete line of standard error is dropped",
        "stderr_filter.py",
        '_write(b"" if _NOISE.match(rest) else rest)',
        '_write(b"")',
        "tests/test_stderr_filter.py",
    ),
    "named_none": Fault(
        'a setting may be the name "none"',
        "strategy_settings.py",
        'return None if chosen == "none" else chosen',
        "return chosen",
        "tests/test_strategy_settings.py",
    ),
    "outermost_line": Fault(
        "the user's line that is named is the outermost one",
        "user_lines.py",
        "for frame in reversed(list(frames)):",
        "for frame in list(frames):",
        "tests/test_user_lines.py",
    ),
    "not_called_back": Fault(
        "nothing is done when Keras has been imported",
        "import_hooks.py",
        "                self._act(module)",
        "                self._awaited = module.__name__",
        "tests/test_import_hooks.py",
    ),
    "stale_distribution": Fault(
        "a cleared session keeps its distribution",
        "_keras_hook.py",
        "_follow(None)  # The session has the distribution of each thread.",
        "original.__name__",
        "tests/strategies/test_layouts.py",
    ),
    "truth_is_a_number": Fault(
        "True passes for a number of replicas",
        "errors.py",
        "if not isinstance(value, bool):\n        try:",
        "if value is not None:\n        try:",
        "tests/test_errors.py",
    ),
    # commands and recipes
    "half_files": Fault(
        "a file that could not be written is left half-written",
        "atomic_files.py",
        "discard(temporary)",
        "temporary.exists()",
        "tests/test_atomic_files.py",
    ),
    "locked_folder": Fault(
        "the lock of a run's folder is not taken",
        "recipes/shared/run_folder.py",
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.lockf(file, fcntl.LOCK_UN)",
        "tests/recipes/shared",
    ),
    "downloads": Fault(
        "the checksum of a download is not looked at",
        "recipes/datasets/downloads.py",
        'file_hash=_published_md5(f"{url}.md5"),',
        "file_hash=None,",
        "tests/recipes/datasets/test_downloads.py",
    ),
    "first_step": Fault(
        "a resumed run begins its pass over the rows anew",
        "recipes/datasets/row_order.py",
        "return passes.flat_map(one_pass).skip(first_step % steps_per_pass)",
        "return passes.flat_map(one_pass)",
        "tests/recipes/datasets/test_row_order.py tests/recipes/shared",
    ),
    "missing_ratings": Fault(
        "missing ratings count as ratings of 0",
        "recipes/autoencoder/losses.py",
        "correction = tf.square(predictions - ratings) - tf.square(predictions)",
        "correction = tf.square(predictions - ratings)",
        "tests/recipes/autoencoder/test_losses.py",
    ),
}
"""Name of a fault to the `Fault`."""


def plant(fault, root):
    """Changes a fault's line in a copy of the repository.

    Raises:
        ValueError: If the line is not there exactly once.
    """
    path = root / "kerasmgpu" / fault.file
    text = path.read_text("utf-8")
    if text.count(fault.line) != 1:
        raise ValueError(
            f"{fault.file} has {text.count(fault.line)} times the line "
            f"{fault.line!r}; a fault needs a line that is there once"
        )
    path.write_text(text.replace(fault.line, fault.planted), "utf-8")


def finders(fault, all_tests=False, every=False):
    """Tests that fail on a copy of the repository with the fault.

    Args:
        fault: `Fault`.
        all_tests: Whether those that the quick tier leaves out run, too.
        every: Whether tests behind the first that fails run, too.

    Returns:
        List of names, as pytest prints them; a file that can't be imported is
        one, too.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "repository"
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".git", "__pycache__")
        )
        plant(fault, copy)
        command = [sys.executable, "-m", "pytest", "-q", "-rfE"]
        command += ["-p", "no:cacheprovider", *fault.tests.split()]
        command += ["--all"] * all_tests + ["-x"] * (not every)
        done = subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)
    if bool(found) != (done.returncode != 0):
        raise RuntimeError(
            f"pytest ended with {done.returncode}: {done.stdout}{done.stderr}"
        )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="the whole suite")
    parser.add_argument("--names", help="faults, separated by commas")
    parser.add_argument("--finders", help="file of all tests that find each")
    arguments = parser.parse_args()
    names = arguments.names.split(",") if arguments.names else list(FAULTS)
    print("| fault | file | found | s |\n|---|---|---|---|")
    found = {}
    for name in names:
        fault, start = FAULTS[name], time.monotonic()
        every = arguments.finders is not None
        found[name] = finders(fault, arguments.all, every)
        print(
            f"| {fault.what} | `{fault.file}` "
            f"| {'yes' if found[name] else 'no'} "
            f"| {time.monotonic() - start:.0f} |",
            flush=True,
        )
        if every:
            path = pathlib.Path(arguments.finders)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found, indent=1), "utf-8")
    print(f"\n{sum(map(bool, found.values()))} of {len(names)} faults found.")
    if arguments.finders:
        for name, tests in found.items():
            print(f"{name}: {len(tests)}", *tests, sep="\n  ")


if __name__ == "__main__":
    main()
