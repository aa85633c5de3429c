"""Cases of `shared_program`: cases of the parity table."""


def run(strategy, name, files):
    """`harness.Outcome` of a case."""
    from benchmarks.exactness import harness
    from benchmarks.exactness.registry import cases
    from tests.parity.one_device import is_predicted

    case = cases("parity")[name]
    return harness.run(case, strategy(), predicts=is_predicted(case))
