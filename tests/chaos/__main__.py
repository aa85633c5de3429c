"""The fault campaign.

    python -m tests.chaos --num_faults=20 --seed=0
    python -m tests.chaos --num_faults=20 --sharded --only=kill_in_a_save

Prints a table for docs/checkpoints.md; exit status 0 only if every job ended
by itself with the weights of the run to which nothing happened.
"""

import argparse
import pathlib
import random
import sys
import tempfile

from tests.chaos import campaign, faults


def main():
    """Runs the campaign and prints its table as it grows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--only", help="Name of one fault.")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    kinds = list(faults.FAULTS)
    if arguments.only:
        kinds = [getattr(faults, arguments.only)]
    if faults.fill_the_disk in kinds and not faults.can_mount():
        print("No small disks without root: no fault fills one.")
        kinds.remove(faults.fill_the_disk)
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        sharded = arguments.sharded
        expected = campaign.quiet_run(folder, sharded)
        print("| | fault | at step | starts | exit status | same weights | s |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for number in range(arguments.num_faults):
            fault = kinds[number % len(kinds)]
            place = folder / str(number)
            outcome = campaign.strike(
                fault, place, expected, chance, sharded=sharded
            )
            outcomes.append(outcome)
            same = "yes" if outcome.same_weights else "NO"
            print(
                f"| {number + 1} | {outcome.fault} | {outcome.step} | "
                f"{outcome.starts} | {outcome.status} | {same} | "
                f"{outcome.seconds:.0f} |",
                flush=True,
            )
            if not outcome.survived:
                print((place / "log.txt").read_text()[-6000:], file=sys.stderr)
    survived = sum(outcome.survived for outcome in outcomes)
    print(f"\n{survived} of {len(outcomes)} jobs ended as the quiet one.")
    return survived < len(outcomes)


if __name__ == "__main__":
    sys.exit(main())
