"""Whether the engine has become slower: ratios of its own speeds in one run, never times, against those that were
measured on a processor of the same kind.

    python3 bench/check_ratios.py [--program build/longheads] [--tolerance 0.25] [--record]

Each ratio is of two medians of `longheads bench sweep`, measured in turn on this machine. A ratio that is lower than the
recorded one (bench/ratios.json) by more than the tolerance fails. Two runs on a shared machine, one after the other,
differed by 2 to 28%; the lower was recorded. --record writes what was measured into the file, for this kind of
processor: the widest of the backends that ran.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "ratios.json"
LONGHEADS = "longheads,chunk=256,window=4096,reps=head,select=head"

# Of what over what, as (method, compute, length, prefill or decode).
RATIOS = {
    "int8 to f32, prompt of 512": (("full", "int8", 512, "prefill"), ("full", "f32", 512, "prefill")),
    "int8 to f32, token behind 512": (("full", "int8", 512, "decode"), ("full", "f32", 512, "decode")),
    "longheads to full, prompt of 16k": ((LONGHEADS, "int8", 16384, "prefill"), ("full", "int8", 16384, "prefill")),
    "longheads to full, token behind 16k": ((LONGHEADS, "int8", 16384, "decode"), ("full", "int8", 16384, "decode")),
    "longheads, prompt of 16k to one of 4k": (
        (LONGHEADS, "int8", 16384, "prefill"),
        (LONGHEADS, "int8", 4096, "prefill"),
    ),
    "longheads, token behind 16k to one behind 4k": (
        (LONGHEADS, "int8", 16384, "decode"),
        (LONGHEADS, "int8", 4096, "decode"),
    ),
}


def speeds(program):
    """{(method, compute, length, phase): tokens a second}, and the widest backend."""
    found, backend = {}, ""
    for methods, compute, lengths in (("full", "f32", "512"), (f"full;{LONGHEADS}", "int8", "512,4096,16384")):
        with tempfile.TemporaryDirectory() as folder:
            command = [program, "bench", "sweep", "--attn", methods, "--compute", compute, "--lengths", lengths]
            subprocess.run([*command, "-n", "48", "--repeats", "3", "--out", folder], check=True)
            for row in json.loads((pathlib.Path(folder) / "sweep.json").read_text())["rows"]:
                for phase in ("prefill", "decode"):
                    found[row["attn"], compute, row["length"], phase] = row[phase]["median"]
                backend = row["kernels"].split()[1]  # "attention avx512bf16 in ..."
    return found, backend


def judge(ratios, recorded, tolerance):
    """The names of those that are lower than recorded by more than the tolerance."""
    return [name for name, ratio in ratios.items() if ratio < (1 - tolerance) * recorded.get(name, 0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=HERE.parent / "build/longheads")
    parser.add_argument("--tolerance", type=float, default=0.25)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    found, backend = speeds(options.program)
    ratios = {name: round(found[over] / found[under], 2) for name, (over, under) in RATIOS.items()}
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name, ratio in ratios.items():
        print(f"{name}: {ratio} (recorded for {backend}: {recorded.get(backend, {}).get(name, 'nothing')})")
    if options.record:
        recorded[backend] = ratios
        RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
        return 0
    if backend not in recorded:
        print(f"nothing is recorded for {backend}: --record does")
        return 2
    lower = judge(ratios, recorded[backend], options.tolerance)
    if lower:
        print(f"more than {options.tolerance:.0%} lower than recorded: {', '.join(lower)}")
    return 1 if lower else 0


if __name__ == "__main__":
    sys.exit(main())
