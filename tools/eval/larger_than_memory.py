"""Reads and asks texts that are larger than the memory it is given, and writes what that took.

    python3 tools/eval/larger_than_memory.py PART [--compute TYPE] [--seeds N...] [--out DIR] [--work DIR] [--program FILE]

    decode    tokens generated behind 64k tokens of Jane Austen with a quarter of the keys and values in memory: once alone,
              and behind three pieces of the text (those of --seeds) in turn with an engine that has all of them in memory,
              eight tokens of each; the medians of these, the most, and each
    million   a million tokens of Jane Austen and the King James Bible, with a pass key among them, on the default model:
              read with 2 GiB of keys and values in memory, killed on the way, resumed, opened and asked, in 4 GiB in all
    large     128k tokens on a 1.1B Llama of random weights, with 1 GiB in memory, in 4 GiB in all

Each part writes DIR/PART.json (decode --compute int8: DIR/decode-int8.json; docs/results/larger-than-memory), with the
program's commit and the day. The memory is limited by a cgroup (version 1 or 2), page cache included; where none can be made,
for want of rights, that is said, and only the peaks of the processes are measured. Needs 40 GB in the folder of --work, which
should be on a disk and not in memory, and an hour or two of 2 cores. Leave the machine alone meanwhile. Build the program
before (make build), and fetch texts and model (make model).
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "longheads"
DEFAULT_MODEL = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"
GIB = 1 << 30
KEY = 71432
PROGRESS = re.compile(r"\d+ % of \d+ tokens, ")


class MemoryLimit:
    """A cgroup of `size` bytes; the processes of Run go into it."""

    ROOTS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")

    def __init__(self, size):
        self.size = size
        self.folder = None
        if size is None:
            return
        for root in self.ROOTS:
            folder = pathlib.Path(root) / f"longheads-{os.getpid()}"
            try:
                folder.mkdir()
                first = "memory.limit_in_bytes" if (folder / "memory.limit_in_bytes").exists() else "memory.max"
                (folder / first).write_text(str(size))
            except OSError:
                if folder.is_dir():
                    folder.rmdir()
                continue
            self.folder = folder
            return
        print("no memory cgroup can be made here: memory is measured, and not limited", file=sys.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.folder:
            self.folder.rmdir()

    def enter(self):
        if self.folder:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self):
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            path = self.folder / name if self.folder else None
            if path and path.exists():
                return int(path.read_text())
        return None


def run(command, limit, stdin=None, kill_after=None):
    """Runs to the end, or to kill -9 after so many seconds; what it said and what it took."""
    print("$", " ".join(map(str, command)), file=sys.stderr, flush=True)
    with tempfile.TemporaryFile("w+") as fed, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        fed.write(stdin or "")
        fed.seek(0)
        start = time.monotonic()
        process = subprocess.Popen(list(map(str, command)), stdin=fed, stdout=out, stderr=err, preexec_fn=limit.enter)
        killer = threading.Timer(kill_after, process.kill) if kill_after else None
        if killer:
            killer.start()
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        if killer:
            killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        said = "\n".join(line.split("\r")[-1] for line in err.read().splitlines())
        answer = out.read()
    print(said, file=sys.stderr, flush=True)
    killed = process.returncode == -signal.SIGKILL and kill_after is not None
    if process.returncode != 0 and not killed:
        sys.exit(f"larger_than_memory.py: the program ended with {process.returncode}")
    return {"command": " ".join(map(str, command)), "killed": killed, "seconds": round(seconds, 1),
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 1), "peak_rss": used.ru_maxrss * 1024,
            "peak_with_cache": limit.peak(), "memory_limit": limit.size if limit.folder else None,
            "out": answer, "notes": [line for line in said.splitlines() if line.strip() and not PROGRESS.search(line)]}


def leave_cache(path):
    """What of a file is in the system's cache goes, so that the next who opens it reads from disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Measurement:
    def __init__(self, options):
        self.program = options.program
        self.work = pathlib.Path(options.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.runs = []

    def run(self, *command, **keywords):
        limit = keywords.pop("limit")
        taken = run([self.program, *command], limit, **keywords)
        self.runs.append(taken)
        return taken

    def limits(self):
        """Of this machine: what its memory, its products and the disk of --work give."""
        return json.loads(self.run("bench", "limits", "--json", "--disk", self.work, limit=MemoryLimit(None))["out"])


def name_of(program):
    """Its version, and the commit that it was built from where its build folder says so (cmake/commit.cmake)."""
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    note = pathlib.Path(program).parent / "src/eval/include/eval/commit.h"
    commit = re.search('"(.+)"', note.read_text(encoding="utf-8")) if note.exists() else None
    return f"{version}, commit {commit[1] if commit else 'unknown'}"


def text_of(name):
    path = CACHE / f"{name}.txt"
    if not path.exists():
        subprocess.run(["sh", ROOT / "tools/eval/text.sh", name, path], check=True)
    return path.read_text(encoding="utf-8")


def decode(m, compute, seeds):
    """What a token costs when three quarters of what it may choose from are on disk."""
    length, n = 65536, 256
    n_bytes = length * 30 * 3 * 64 * 2 * 2  # layers, KV heads, head size, K and V, bfloat16
    text = m.work / "austen.txt"
    text.write_text(text_of("austen"), encoding="utf-8")
    out = m.work / "decode"
    sweep = ["bench", "sweep", "--attn", "auto", "--compute", compute, "--kv-type", "bf16", "--lengths", str(length),
             "-n", str(n), "--repeats", "1", "--text", text, "--out", out]
    # What is known of pages, and what heads choose by, stay in memory too.
    plan = m.run("info", DEFAULT_MODEL, "-c", str(length + n), "--compute", compute, "--kv-type", "bf16",
                 limit=MemoryLimit(None))["out"]
    beside = sum(float(size) for size in re.findall(r"(?:tables of pages|method's state) ([\d.]+) MiB", plan)) * (1 << 20)
    sweep += ["--kv-ram", f"{round((n_bytes // 4 + beside) / (1 << 20))}m", "--kv-disk", m.work]

    def measured(*options, memory):
        with MemoryLimit(memory + GIB) as limit:
            m.run(*sweep, *options, limit=limit)
        return json.loads((out / "sweep.json").read_text())

    alone = measured(memory=n_bytes // 4)
    rounds = []
    for seed in seeds:
        found = measured("--beside-memory", "--seed", str(seed), memory=n_bytes // 4 + n_bytes)
        row = found["rows"][0]
        in_memory, taken = 1 / row["decode_in_memory"]["mean"], 1 / row["decode"]["mean"]  # bytes are a mean too
        from_disk = row["decode_traffic"]["disk_bytes_a_token"] / found["limits"]["disk"]["median"]
        rounds.append({"speed_to_all_in_memory": in_memory / taken, "seconds_a_token": taken,
                       "seconds_a_token_all_in_memory": in_memory, "seconds_of_disk_a_token": from_disk,
                       "time_to_the_larger_of_both": taken / max(in_memory, from_disk), "sweep": found})
    middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0] if name != "sweep"}
    most = max(one["time_to_the_larger_of_both"] for one in rounds)
    return {**middle, "most_time_to_the_larger_of_both": most, "rounds": rounds, "alone": alone}


def share_of_disk(taken, disk):
    """Of what the disk could have moved in the time of a command, what it moved, and of the threads' time, what they
    waited for it; None where nothing is said of it."""
    said = "\n".join(taken["notes"])
    moved = re.search(r"([\d.]+) (B|KiB|MiB|GiB) read from disk, ([\d.]+) (B|KiB|MiB|GiB) written", said)
    waited = re.search(r"(\d+) threads waited ([\d.]+) s", said)
    if not moved or not waited:
        return None
    unit = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    n_bytes = float(moved[1]) * unit[moved[2]] + float(moved[3]) * unit[moved[4]]
    return {"bytes": n_bytes, "share": n_bytes / taken["seconds"] / disk["median"],
            "waited": float(waited[2]) / int(waited[1]) / taken["seconds"]}


def read_and_ask(m, disk, model, text, ram, attention, kv_type, questions, kill_after):
    book = m.work / "text.lhctx"
    for stale in (book, pathlib.Path(f"{book}.partial")):
        stale.unlink(missing_ok=True)
    ingest = ["ingest", "-m", model, "-f", text, "-o", book, "--attn", attention, "--compute", "int8",
              "--kv-type", kv_type, "--kv-ram", ram]
    with MemoryLimit(4 * GIB) as limit:
        if kill_after and not m.run(*ingest, limit=limit, kill_after=kill_after)["killed"]:
            sys.exit("larger_than_memory.py: the text was read before it could be killed")
        read = m.run(*ingest, limit=limit)
    goes_on = re.search(r"goes on behind token (\d+) of", "\n".join(read["notes"]))
    leave_cache(book)
    with MemoryLimit(4 * GIB) as limit:
        asked = m.run("ask", book, "-m", model, "--kv-ram", ram, "--json", "-n", "24", limit=limit,
                      stdin="".join(f"{q}\n" for q in questions))
    with MemoryLimit(4 * GIB) as limit:
        verified = m.run("context", "verify", book, limit=limit)
    answers = [json.loads(line) for line in asked["out"].splitlines()]
    plan = m.run("info", model, "-c", answers[0]["text_tokens"], "--attn", attention, "--compute", "int8",
                 "--kv-type", kv_type, "--kv-ram", ram, limit=MemoryLimit(None))["out"]
    opened = re.search(r"opened in ([\d.]+) s", "\n".join(asked["notes"]))
    result = {"tokens": answers[0]["text_tokens"], "went_on_behind": int(goes_on.group(1)) if goes_on else 0,
              "file_bytes": book.stat().st_size,
              "opened_seconds": float(opened.group(1)), "answers": answers,
              "reading": share_of_disk(read, disk), "asking": share_of_disk(asked, disk),
              "verifying_share": book.stat().st_size / verified["seconds"] / disk["median"],
              "plan": [line for line in plan.splitlines() if "MiB" in line or "GiB" in line]}
    book.unlink()
    return result


def million(m, disk):
    # With the model's tokenizer a million tokens, and some.
    text = (text_of("austen") + "\n\n" + text_of("kjv"))[:4_250_000]
    middle = text.index("\n\n", len(text) // 2)
    text = f"{text[:middle]}\n\nThe pass key is {KEY}. Remember it. {KEY} is the pass key.{text[middle:]}"
    path = m.work / "million.txt"
    path.write_text(text, encoding="utf-8")
    questions = ["What is the pass key?", "Who is Mr. Darcy?", "Who was Noah?"]
    return read_and_ask(m, disk, DEFAULT_MODEL, path, "2g", "auto", "bf16", questions, kill_after=240)


def large(m, disk):
    model = m.work / "llama-1.1B.gguf"
    if not model.exists():
        subprocess.run([sys.executable, ROOT / "bench/random_model.py", "1.1B", "Q4_K_M", model], check=True)
    path = m.work / "large.txt"
    path.write_text(text_of("austen")[:553_000], encoding="utf-8")  # some 131,000 tokens
    attention = "longheads,chunk=256,window=2048,begin=2048"
    return read_and_ask(m, disk, model, path, "1g", attention, "bf16", ["What happened?", "Who spoke?"], kill_after=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("decode", "million", "large"))
    parser.add_argument("--out", default=ROOT / "docs/results/larger-than-memory")
    parser.add_argument("--work", default="/var/tmp/longheads", help="folder on a disk with 40 GB free (%(default)s)")
    parser.add_argument("--program", default=ROOT / "build/longheads")
    parser.add_argument("--compute", choices=("f32", "int8"), help="of decode (f32); the others take int8")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="N", help="of decode: pieces of the text (1 2 3)")
    options = parser.parse_args()
    if options.compute and options.part != "decode":
        parser.error(f"--compute is of decode alone: {options.part} takes int8")
    if options.seeds and options.part != "decode":
        parser.error(f"--seeds is of decode alone: {options.part} reads one text")
    program, date = name_of(options.program), time.strftime("%Y-%m-%d")
    m = Measurement(options)
    limits = m.limits()
    parts = {"decode": lambda: decode(m, options.compute or "f32", options.seeds or [1, 2, 3]), "million": lambda: million(m, limits["disk"]),
             "large": lambda: large(m, limits["disk"])}
    result = parts[options.part]()
    for taken in m.runs:
        taken.pop("out")
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{options.part}{'-int8' if options.compute == 'int8' else ''}.json"
    found = {"program": program, "date": date, "limits": limits, "result": result, "runs": m.runs}
    text = json.dumps(found, indent=1, ensure_ascii=False)
    path.write_text(text.replace(str(m.work), "WORK").replace(str(CACHE), "CACHE").replace(str(ROOT), ".") + "\n",
                    encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
