"""Keeps open scopes when TensorFlow's default graph is reset within them.

`keras.utils.clear_session()` replaces this thread's default graph, which holds
the open strategy scopes: later code would run on one device, and the scope
could not be left. Under our strategies the new graph takes the scopes over.
Checked on TensorFlow 2.18 and 2.21.
"""

from typing import Any

import tensorflow as tf

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.private_names import graphs, variable_scope
from kerasmgpu.engine.seams import Original, seam


@seam(graphs._DefaultGraphStack, "reset")
def _reset(original: Original, stack: Any) -> None:
    """Replaces the default graph, and hands the open scopes on."""
    before = tf.compat.v1.get_default_graph()
    original(stack)
    opened = before._distribution_strategy_stack
    if any(is_ours(context.strategy) for context in opened):
        after = tf.compat.v1.get_default_graph()
        # Strategies and creators of variables. Shared rather than copied: a
        # scope that is left later restores them in the graph it was entered in.
        after._thread_local = before._thread_local
        # The scope of `tf.compat.v1.get_variable`.
        key = variable_scope._VARSCOPESTORE_KEY
        after.get_collection_ref(key)[:] = before.get_collection(key)
