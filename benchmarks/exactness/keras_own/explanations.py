"""Why a test of Keras fails under our strategy, one by one."""

import re

STEP_WITHOUT_DATA = (
    r"Other numbers:"
    r"(\ncall \d+, \w+, optimizer: array 0 is int\d+\[\] [^\n]*)+",
    "on one device the optimizer's count of steps does not wait for the batch, "
    "so the step that finds the end of the data is counted too; here it is not",
)

ONLY_ROUNDING = (
    r"Other numbers:(\ncall 1, fit, (variables: array 0|optimizer: array \d+) "
    r"is float32\[2\] [^\n]*)+",
    "the second feature is constant, so its gradients are what rounding leaves "
    "of zero, and RMSprop makes steps of any gradient's sign",
)

BY_IDENTITY = (
    r".*in test_sparse_gradients\n.*AssertionError: False != True",
    "the test looks for the very `tf.Variable` that it made among those that "
    "are updated, and replicas update their copies of it",
)

CAUSES = {
    (
        "layers.rnn.dropout_rnn_cell_test",
        "DropoutRNNCellTest::test_basics",
    ): (
        r"Other numbers:\ncall 2, fit, variables: array 0 [^\n]*",
        "its second model trains in float16, of which replicas round sums of "
        "their own rows",
    ),
    **{
        (
            "optimizers.optimizer_sparse_test",
            f"OptimizerSparseTest::test_sparse_gradients_{optimizer}",
        ): BY_IDENTITY
        for optimizer in (
            "adadelta",
            "adafactor",
            "adagrad",
            "loss_scale_optimizer_sgd",
            "rmsprop",
            "scatter_update",
            "sgd",
        )
    },
    (
        "trainers.trainer_test",
        "TestTrainer::test_for_eval_epoch_iterator",
    ): (
        r"Other numbers:\nother methods of models were called",
        "the test swallows the error of one device, which can't evaluate "
        "batches of another rank after the first; here it can",
    ),
    (
        "callbacks.swap_ema_weights_test",
        "SwapEMAWeightsTest::test_swap_ema_weights_with_tf_distribute",
    ): (
        r".*Mixing different tf.distribute.Strategy objects.*",
        "the test enters a strategy of its own, and it runs in ours already",
    ),
    **{
        ("trainers.trainer_test", f"TestTrainer::{test}"): STEP_WITHOUT_DATA
        for test in (
            "test_fit_sparse_scipy_graph",
            "test_fit_sparse_tf_graph",
            "test_steps_per_execution_steps_count_unknown_dataset_size_"
            "101_non_jit",
            "test_steps_per_execution_steps_count_unknown_dataset_size_"
            "3_non_jit",
            "test_steps_per_execution_steps_per_epoch_unknown_data_size_"
            "match_non_jit",
            "test_steps_per_execution_steps_per_epoch_unknown_data_size_"
            "not_match_but_high_enough_non_jit",
        )
    },
    **{
        ("models.model_test", f"ModelTest::{test}"): STEP_WITHOUT_DATA
        for test in (
            "test_functional_optional_inputs_generator_optional_none",
            "test_functional_optional_inputs_generator_optional_tensor",
        )
    },
    **{
        (
            "layers.normalization.batch_normalization_test",
            f"BatchNormalizationTest::{test}",
        ): ONLY_ROUNDING
        for test in (
            "test_bachnorm_ignore_masked_values3",
            "test_bachnorm_ignore_masked_values4",
            "test_bachnorm_ignore_masked_values5",
        )
    },
}
"""`(module, test)` to what its error matches, and the cause in a sentence.

A module is named without `keras.src.`. The error is what pytest prints, or the
numbers that differ; it must match as a whole.
"""


def explanation(module, test, error):
    """Why a test fails though it passes on one device, in words.

    Args:
        module: Name of the test's module.
        test: Name of the test.
        error: Its error. A cause explains only the error that it names.

    Returns:
        A string, or `None` if that is not explained.
    """
    pattern, cause = CAUSES.get((_short(module), test), (None, None))
    if pattern is None or not re.fullmatch(pattern, error.strip(), re.DOTALL):
        return None
    return cause


def explained(module):
    """Names of the tests of a module that are said to fail."""
    return {test for known, test in CAUSES if known == _short(module)}


def _short(module):
    return module.removeprefix("keras.src.")
