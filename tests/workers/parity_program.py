"""Cases of `shared_program`: cases of the parity table."""


def run(strategy, name, files):
    """`harness.Outcome` of a case."""
    from tests.parity import harness
    from tests.parity.cases import CASES
    from tests.parity.one_device import is_predicted

    case = CASES[name]
    return harness.run(case, strategy(), predicts=is_predicted(case))
