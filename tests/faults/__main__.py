"""All faults, one after the other.

    python -m tests.faults [NAME …]

Prints a table for docs/hangs.md; exit status 0 only if each fault was named
rightly within 60 seconds, with `HangWatch`'s default limit.
"""

import pathlib
import sys
import tempfile

from tests.faults.faults import FAULTS, can_strike, strike


def main():
    """Prints the table as it grows."""
    names = sys.argv[1:] or list(FAULTS)
    print("| fault | seconds until said | what was said |\n|---|---|---|")
    unnamed = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names):
            if not can_strike(name):
                print(f"| {FAULTS[name].what} | left out: needs root | |")
                continue
            (outcome,) = strike([name], pathlib.Path(folder) / str(number))
            seconds = "NOT SAID"
            if outcome.seconds is None:
                unnamed += 1
                print(outcome.log[-6000:], file=sys.stderr)
            else:
                seconds = f"{outcome.seconds:.0f}"
            print(
                f"| {FAULTS[name].what} | {seconds} | {outcome.said} |",
                flush=True,
            )
    return unnamed


if __name__ == "__main__":
    sys.exit(main())
