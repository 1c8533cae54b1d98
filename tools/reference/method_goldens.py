"""Writes what the naive twins of the attention methods attend to and return, on inputs both sides can
generate; the build does so, for the tests. golden.py specifies the format.

Usage: method_goldens.py [OUT_DIR] [--only WORD] [--search N]
  --only WORD   look at the cases with WORD in their names, and write nothing
  --search N    try the seeds 1..N for each case that chooses, print the widest gap, write nothing

Every part has its list of cases in a file of its own and writes a manifest of its own, partN.json.
"""

import argparse
import importlib.util
import pathlib
import sys
from dataclasses import replace

from golden import arrays_of, write_part

PARTS = ("cases_part1", "cases_part2")


def parts():
    """(manifest, cases) of every part that is there."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    for part in PARTS:
        if importlib.util.find_spec(part) is not None:
            yield part.removeprefix("cases_") + ".json", importlib.import_module(part).CASES


def gap_of(case):
    _, entry = arrays_of(case, case.run())
    return -1.0 if entry["min_gap"] is None else entry["min_gap"]


def show(entry):
    shown = ("name", "n_choices", "n_ties", "min_gap", "max_logit")
    print("  ".join(f"{name} {entry[name]}" for name in shown), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out_dir", nargs="?", type=pathlib.Path, help="print the cases alone without it")
    parser.add_argument("--only", metavar="WORD", default="")
    parser.add_argument("--search", type=int, metavar="N")
    arguments = parser.parse_args()

    found = dict(parts())
    names = [case.name for cases in found.values() for case in cases]
    assert len(names) == len(set(names)), "two cases have the same name"
    for manifest, cases in found.items():
        chosen = [case for case in cases if arguments.only in case.name]
        if arguments.search:
            for case in chosen:
                if case.inputs == "plain" and gap_of(case) >= 0:
                    seeds = range(1, arguments.search + 1)
                    best = max((gap_of(replace(case, seed=seed)), seed) for seed in seeds)
                    print(case.name, *best, flush=True)
        elif arguments.out_dir is None or arguments.only:
            for case in chosen:
                show(arrays_of(case, case.run())[1])
        else:
            write_part(cases, arguments.out_dir, manifest)


if __name__ == "__main__":
    main()
