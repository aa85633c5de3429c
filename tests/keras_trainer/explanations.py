"""Why a test of Keras fails under our strategy, one by one."""

NEEDS_PACKAGE = {
    # Each feeds `fit`, `evaluate` or `predict` with another library's data,
    # and fails likewise on one device where that library is not installed.
    "test_fit_sparse_jax_eager": "jax",
    "test_fit_sparse_jax_graph": "jax",
    "test_evaluate_sparse_jax_eager": "jax",
    "test_evaluate_sparse_jax_graph": "jax",
    "test_predict_sparse_jax_eager": "jax",
    "test_predict_sparse_jax_graph": "jax",
    "test_fit_with_data_adapter_torch_dataloader_tensor": "torch",
    "test_fit_with_data_adapter_torch_dataloader_iterable": "torch",
    "test_fit_with_data_adapter_torch_dataloader_iterable_with_len": "torch",
    "test_fit_with_data_adapter_grain_dataset": "grain",
    "test_fit_with_data_adapter_grain_dataset_with_len": "grain",
    "test_fit_with_data_adapter_grain_dataloader": "grain",
}
"""Test of `keras/src/trainers/trainer_test.py` to the package it imports."""

CAUSES = {}
"""Any other test that fails, to the cause in a sentence."""


def explanation(test, error):
    """Why a test failed, in words, or `None` if that is not explained.

    Args:
        test: Name of the test.
        error: First line of its error. A package explains a failure only
            where the error is that the package is missing.
    """
    package = NEEDS_PACKAGE.get(test)
    if package and f"No module named '{package}'" in error:
        return f"needs the package {package}, on one device too"
    return CAUSES.get(test)
