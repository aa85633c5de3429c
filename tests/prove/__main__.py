"""Proves programs of other tables: python -m tests.prove TABLE [SETTING…] [NAME…]

For each program and setting, or those that are named, a line: what speaks against
it on four GPUs, and what it runs on the host.
"""

import sys
import traceback

from kerasmgpu.engine.devices import make_logical_cpus
from tests.prove import tables


def main(table, *given):
    make_logical_cpus(4)
    settings = [one for one in tables.SETTINGS if one in given]
    names = set(given) - set(settings)
    failed = 0
    for name, make in tables.programs(table).items():
        if names and name not in names:
            continue
        steps = {}
        for setting in settings or tables.SETTINGS:
            on_mesh = setting == "mesh"
            try:
                if on_mesh not in steps:
                    steps[on_mesh] = tables.traced(make, on_mesh)
                found = tables.proved(steps[on_mesh], setting)
            except Exception as error:  # noqa: B902
                failed += 1
                if names:
                    traceback.print_exc()
                told = f"{type(error).__name__}: {error}"
                print(f"FAILED {name}, {setting}: {told[:200]}", flush=True)
                continue
            failed += bool(found.faults)
            verdict = "FAULT" if found.faults else "proved"
            print(
                f"{verdict} {name}, {setting}, {found.seconds:.1f} s",
                f"on the host: {', '.join(found.moved) or 'nothing'}",
                *found.faults[:3],
                sep="; ",
                flush=True,
            )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
