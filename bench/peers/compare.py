"""Speed of longheads beside another engine, in turn on one machine: the same file, the same lengths.

    python3 bench/peers/compare.py openvino [--lengths 512,4096] [--repeats 5] [-- OPTIONS OF `longheads bench sweep`]

Peers: openvino, llama.cpp, transformers. The peer is installed from PyPI, pinned, into an environment of its own below the cache folder. Each repeat runs ours,
then the peer, as processes of their own, on prompts of random ids, so that neither gains by a cache of prefixes. Each reads a
prompt of at most 2048 tokens before the one that is timed. Medians of the repeats are printed with their spread, and ours divided by the peer's,
repeat by repeat. Where the processor is of a kind on which the peer's speed is known and it comes out more than a
tenth below that, it has been set up badly, and the script fails.

A peer may take hours for a long prompt. With --limit SECONDS one that has not read it and generated its tokens by then is
ended; of that length the time of both together is compared, and the ratio is at least what is said. Of llama.cpp --blocks N
times N blocks of the prompt alone, evenly apart, at their own depth, and interpolates the others (llamacpp_worker.py says how).

With --out FILE.csv each repeat of each engine is a line behind those that are there; `tools/eval/plot.py` draws speed against
length of a folder's peers.csv.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import blocks

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "longheads"
MODEL = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"
# What the default model and bench/random_model.py's 1.1B Q4_K_M call themselves.
DEFAULT, RANDOM = "Smollm2 135M 8k Lc100K Mix1 Ep2", "random 1.1B Q4_K_M"

PEERS = {
    "openvino": {
        "engine": "OpenVINO GenAI 2026.4.1",
        "packages": ["openvino-genai==2026.4.1.0", "numpy==2.4.6"],
        "worker": "openvino_worker.py",
        # Tokens a second on 2 cores of a kind of processor, by the model's name: {length: (prefill, decode)}.
        "known": {"Zen 4": {DEFAULT: {512: (1671, 90), 4096: (1034, 61), 8192: (621, 35), 16384: (390, 26)},
                            RANDOM: {512: (233, 24.8), 4096: (172, 15.5)}},
                  "AMX": {DEFAULT: {512: (2891, 49.1), 4096: (1611, 30.2), 16384: (495, 12.3), 32768: (280, 7.44)},
                          RANDOM: {512: (433, 9.37), 4096: (325, 7.25)}}},
    },
    "llama.cpp": {
        "engine": "llama.cpp of llama-cpp-python 0.3.36",
        # Builds the llama.cpp that it carries, for this processor.
        "packages": ["llama-cpp-python==0.3.36", "numpy==2.4.6"],
        "worker": "llamacpp_worker.py",
        "known": {"Zen 4": {DEFAULT: {512: (311, 99), 4096: (227, 53), 8192: (149, 32), 16384: (89, 18)},
                            RANDOM: {512: (134, 37), 4096: (83, 20)}}},
    },
    "transformers": {
        "engine": "transformers 5.23.0",
        # PyTorch and transformers as the oracle has them, 4.5 GB, and what transformers wants for a GGUF file.
        "packages": ["accelerate==1.15.0", "psutil==7.2.2"],
        "beside": "oracle-venv",
        "worker": "transformers_worker.py",
        "known": {},
    },
}


def name_of(program, model):
    """What a GGUF file calls itself (general.name), or nothing."""
    info = subprocess.run([program, "info", model], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.search(r"^family +\S+ \((.+)\)$", info, re.MULTILINE)
    return found[1] if found else ""


def processor():
    info = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    lines = dict(line.split("\t", 1) for line in info.splitlines() if "\t" in line)
    value = lambda key: next((v.lstrip("\t: ") for k, v in lines.items() if k.strip() == key), "")
    return value("model name"), int(value("cpu family") or 0), value("model") or "unknown", set(value("flags").split())


def kind(family, flags):
    """Of a processor, where peers are known on it."""
    if "amx_bf16" in flags:
        return "AMX"
    return "Zen 4" if family == 25 and "avx512_bf16" in flags else None  # 25 is Zen 3 too, 26 is Zen 5


def environment(name, peer):
    """The peer's own Python, installed once."""
    folder = CACHE / "peers" / name
    python = folder / "bin" / "python"
    done = folder / "installed"
    wanted = "\n".join(peer["packages"])
    if not done.is_file() or done.read_text() != wanted:
        print(f"installing {', '.join(peer['packages'])} into {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        options = []
        if "beside" in peer:
            subprocess.run([HERE.parent.parent / "tools/oracle/run.sh", "--environment-only"], check=True)
            other = next((CACHE / peer["beside"]).glob("lib/python*/site-packages"))
            site = next(folder.glob("lib/python*/site-packages"))
            (site / "beside.pth").write_text(f"{other}\n")
            options = ["--no-deps"]
        subprocess.run([python, "-m", "pip", "install", "-q", *options, *peer["packages"]], check=True)
        done.write_text(wanted)
    return python


def fail_unless_done(command, status, said):
    """Where a command failed, that and why, in its own last words."""
    if status != 0:
        last = (said.strip().splitlines() or ["it says nothing"])[-1]
        sys.exit(f"{' '.join(map(str, command))}\nfailed with exit status {status}: {last}")


def time_ours(program, options, model, length, n_decode, threads, seed):
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "bench", "sweep", "-m", model, "--lengths", str(length), "-n", str(n_decode), "-t",
                   str(threads), "--repeats", "1", "--seed", str(seed), "--out", folder, *options]
        result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
        fail_unless_done(command, result.returncode, result.stderr)
        row = json.loads((pathlib.Path(folder) / "sweep.json").read_text())["rows"][0]
    return {"prefill": row["prefill"]["median"], "decode": row["decode"]["median"]}


def is_timed_in_part(length, n_blocks):
    """Whether so many blocks are fewer than such a prompt has."""
    return n_blocks is not None and n_blocks < length // blocks.TOKENS


def time_peer(python, worker, model, length, n_decode, threads, seed, limit=None, n_blocks=None):
    """Tokens a second; None, both, where the timed prompt and the tokens after it take longer than `limit` seconds."""
    command = [python, HERE / worker, model, str(length), str(n_decode), str(threads), str(seed)]
    if n_blocks is not None:
        command.append(str(n_blocks))
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        # Unbuffered: what readline has not returned is left to communicate.
        with subprocess.Popen(command, bufsize=0, stdout=subprocess.PIPE, stderr=said) as process:
            try:
                while (line := process.stdout.readline()) and not line.endswith(b"begin\n"):
                    pass  # whatever the engine itself prints
                output, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                process.kill()
                return {"prefill": None, "decode": None}
            except BaseException:  # Ctrl-C does not leave it running
                process.kill()
                raise
        said.seek(0)
        fail_unless_done(command, process.returncode, said.read())
    if not output.strip():
        sys.exit(f"{' '.join(map(str, command))}\nended well, and gave no figures after 'begin'")
    return json.loads(output.splitlines()[-1])


COLUMNS = ["attn", "length", "repeat", "prefill", "decode", "decoded", "threads", "model", "processor", "ended_after"]


def check_columns(path):
    """Ends the script where rows cannot go behind those of the file."""
    if path.exists() and path.stat().st_size > 0:
        with open(path, newline="", encoding="utf-8") as file:
            if next(csv.reader(file)) != COLUMNS:
                sys.exit(f"{path} has other columns than {','.join(COLUMNS)}: name another file")


def write_down(path, rows):
    """Appends rows to a CSV file, with their names where it is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if file.tell() == 0:
            writer.writeheader()
        writer.writerows(rows)


def spread(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g}-{max(values):.4g})"


def compared(ours, theirs, length, n_decode, limit):
    """{what: there is to say of it}: prefill and decode, or where a peer was ended in a repeat, both together."""
    if any(run["prefill"] is None for run in theirs):
        def seconds(run):
            return limit if run["prefill"] is None else length / run["prefill"] + n_decode / run["decode"]
        ratios = [seconds(their) / seconds(our) for our, their in zip(ours, theirs)]
        return {"prompt and answer": f"longheads {spread([seconds(run) for run in ours])} s, the peer at least "
                                     f"{spread([seconds(run) for run in theirs])} s (ended after {limit:g}), "
                                     f"ratio at least {spread(ratios)}"}
    said = {}
    for what in ("prefill", "decode"):
        mine, other = [run[what] for run in ours], [run[what] for run in theirs]
        ratios = [a / b for a, b in zip(mine, other)]
        said[what] = f"longheads {spread(mine)} tokens/s, the peer {spread(other)}, ratio {spread(ratios)}"
    return said


def below_known(peer, kind_here, model, length, theirs):
    """A sentence for each speed of a peer that is more than a tenth below what is known of it on such a processor."""
    known = peer["known"].get(kind_here, {}).get(model, {}).get(length)
    if known is None or any(run["prefill"] is None for run in theirs):
        return []
    return [f"{length} tokens, {what}: {speed} tokens/s are known of this kind of processor"
            for what, speed in zip(("prefill", "decode"), known)
            if statistics.median(run[what] for run in theirs) < 0.9 * speed]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("-m", "--model", type=pathlib.Path, default=MODEL)
    parser.add_argument("--lengths", default="512,4096")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-n", "--predict", type=int, default=32, help="tokens generated after each prompt")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="end a peer that takes longer for a prompt and its answer")
    parser.add_argument("--blocks", type=int, metavar="N", 
                        help="llama.cpp: time no more than N (2 or more) of a prompt's blocks of 512 tokens, and take the others from these")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.csv", help="write each repeat down here, behind others")
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent.parent / "build" / "longheads")
    parser.epilog = "After '--': options of longheads bench sweep; default: --attn full"
    # By hand: argparse gives a positional list that comes after options to nobody.
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:end])
    arguments.options = sys.argv[end + 1:] or ["--attn", "full"]
    for path, made_by in ((arguments.program, "make build"), (arguments.model, "make model")):
        if not path.is_file():
            sys.exit(f"{path} is not there: '{made_by}' makes it")
    if arguments.limit is not None and not arguments.limit > 0:
        sys.exit("--limit must be above 0")
    if arguments.blocks is not None and (arguments.peer != "llama.cpp" or arguments.blocks < 2):
        sys.exit("--blocks is for llama.cpp, and 2 or more")
    if arguments.out:
        check_columns(arguments.out)
    peer = PEERS[arguments.peer]
    python = environment(arguments.peer, peer)
    name, family, generation, flags = processor()
    full_name = f"{name} (family {family}, model {generation})"  # of several kinds, the name may be the same
    print(f"{name}, {arguments.threads} threads; {arguments.model.name}; {' '.join(peer['packages'])}; "
          f"longheads {' '.join(arguments.options)}; medians (least-most) of {arguments.repeats}")

    too_slow = []
    for length in map(int, arguments.lengths.split(",")):
        ours, theirs = [], []
        for repeat in range(arguments.repeats):
            same = (arguments.model, length, arguments.predict, arguments.threads, repeat + 1)
            ours.append(time_ours(arguments.program, arguments.options, *same))
            theirs.append(time_peer(python, peer["worker"], *same, arguments.limit, arguments.blocks))
            if timed := theirs[-1].pop("blocks", None):
                print(f"{length} tokens, the peer timed in part: a block " +
                      ", ".join(f"behind {start} took {seconds:.2f} s" for start, seconds in timed.items()), flush=True)
            if arguments.out:
                names = ("longheads " + " ".join(arguments.options),
                         peer["engine"] + (f", {arguments.blocks} blocks timed" if is_timed_in_part(length, arguments.blocks) else ""))
                write_down(arguments.out, [
                    {"attn": engine, "length": length, "repeat": repeat, **run, "decoded": arguments.predict,
                     "threads": arguments.threads, "model": arguments.model.name, "processor": full_name,
                     "ended_after": arguments.limit if run["prefill"] is None else ""}
                    for engine, run in zip(names, (ours[-1], theirs[-1]))])
        for what, said in compared(ours, theirs, length, arguments.predict, arguments.limit).items():
            in_part = is_timed_in_part(length, arguments.blocks) and what == "prefill"
            print(f"{length} tokens, {what}: {said}" + (f", by {arguments.blocks} of its blocks" if in_part else ""), flush=True)
        if arguments.threads == 2:
            too_slow += below_known(peer, kind(family, flags), name_of(arguments.program, arguments.model), length, theirs)
    if too_slow:
        sys.exit(f"{arguments.peer} is more than a tenth below what it can do, set it up better or quiet the machine:\n" +
                 "\n".join(too_slow))


if __name__ == "__main__":
    main()
