"""All operations, each as often as it is to be drawn."""

from tests.partitioner.scope import Skip

OPERATIONS = []


def operation(weight=1):
    """Registers an operation that is drawn `weight` times as often."""

    def register(function):
        OPERATIONS.extend([function] * weight)
        return function

    return register


def draw_lines(scope, most):
    """Draws operations; those for which there is nothing are left out."""
    for _ in range(most):
        if not scope.integer(0, most):
            break
        try:
            scope.choice(OPERATIONS)(scope)
        except Skip:
            continue
