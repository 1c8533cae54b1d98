"""Kills the program at random moments while it makes, replaces and extends a context file, and looks what is left.

usage: test_kills.py PROGRAM WRITE_TINY_MODELS KILL_AT_LIBRARY [--kills N] [--seed N]

A moment is one of the calls that change files, and where in it (kill_at.cc): so it can be had again by its seed, and
how many kills fall inside writes is known. After each kill what can be opened must be the old text or the new one,
whole; the same command, killed again or not, must come to the bytes of one that nobody disturbed.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading

WRITES = ("pwrite", "io_uring_submit")
WORDS = "river stone left under a the ring of who asked and then nothing".split()


def text_of(seed, n_words):
    words = random.Random(seed)
    return " ".join(words.choice(WORDS) for _ in range(n_words))


class Case:
    """One command on one file: what is there before, and what must be there at the end."""

    def __init__(self, name, folder, begin, command, before, uring):
        self.name = name
        self.folder = folder
        self.begin = begin  # the file before, or None
        self.command = command
        self.appends = command[0] == "context"
        self.before = before  # tokens that its readers see before, None where there is no file
        self.env = {} if uring else {"LONGHEADS_KILL_NO_URING": "1"}

    def arguments(self, folder):
        return [str(a).replace("{out}", str(folder / "text.lhctx")) for a in self.command]


class Crashes:
    def __init__(self, program, library, models, folder):
        self.program, self.library, self.models, self.folder = program, library, models, folder
        self.lock = threading.Lock()
        self.kills = collections.Counter()
        self.failures = []

    @classmethod
    @contextlib.contextmanager
    def begun(cls, **numbers):
        """What the command line names, in a folder of its own; and its options, which are these numbers by default."""
        parser = argparse.ArgumentParser()
        for name in ("program", "write_tiny_models", "library"):
            parser.add_argument(name)
        for name, default in numbers.items():
            parser.add_argument(f"--{name}", type=int, default=default)
        options = parser.parse_args()
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            subprocess.run([options.write_tiny_models, str(folder / "models")], check=True)
            yield cls(os.path.abspath(options.program), os.path.abspath(options.library), folder / "models", folder), options

    def run(self, arguments, env=None):
        return subprocess.run([self.program, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=600, env=dict(os.environ, **(env or {})))

    def must(self, arguments, env=None):
        result = self.run(arguments, env)
        if result.returncode != 0:
            raise AssertionError(f"{arguments}: {result.returncode}: {result.stderr.decode()}")
        return result.stdout

    def preloaded(self, log):
        return {"LD_PRELOAD": self.library, "LONGHEADS_KILL_LOG": str(log)}

    def tokens_of(self, file):
        return self.must(["context", "export", "--tokens", file])

    # ---- What is killed

    def cases(self, names=None):
        """All, or those of these names."""
        texts = {name: self.folder / f"{name}.txt" for name in ("old", "new", "more")}
        texts["old"].write_text(text_of(1, 650))
        texts["new"].write_text(text_of(2, 1250))
        texts["more"].write_text(text_of(3, 900))
        model = ["-m", self.models / "plain.gguf", "-t", 1, "--quiet"]
        cases = []
        for attention, ram, uring in (("full", [], True), ("full", ["--kv-ram", "2m"], False),
                                      ("longheads,chunk=64,window=512,begin=640", ["--kv-ram", "2m"], True),
                                      ("longheads,chunk=64,window=512,begin=640", [], False)):
            name = f"{attention.split(',')[0]}{'-tiers' if ram else ''}-{'uring' if uring else 'threads'}"
            method = [*model, *ram, "--attn", attention]
            old = self.folder / f"{name}.old"
            self.must(["ingest", "-f", texts["old"], "-o", old, *method])
            self.must(["context", "verify", old])
            tokens = self.tokens_of(old)
            ingest = ["ingest", "-f", texts["new"], "-o", "{out}", *method]
            append = ["context", "append", "{out}", "-f", texts["more"], "--behind", len(tokens.split()), *model, *ram]
            cases += [Case("ingest-" + name, self.folder / ("ingest-" + name), None, ingest, None, uring),
                      Case("replace-" + name, self.folder / ("replace-" + name), old, ingest, tokens, uring),
                      Case("append-" + name, self.folder / ("append-" + name), old, append, tokens, uring)]
        cases = [case for case in cases if names is None or case.name in names]
        for case in cases:
            self.undisturbed(case)
        return cases

    def undisturbed(self, case):
        folder = self.fresh(case, "whole")
        log = folder / "log"
        self.must(case.arguments(folder), dict(case.env, **self.preloaded(log)))
        case.calls = [line.split()[0] for line in log.read_text().splitlines()]
        case.writes = [k for k, call in enumerate(case.calls, 1) if call in WRITES]
        file = folder / "text.lhctx"
        self.must(["context", "verify", file])
        case.after_bytes = file.read_bytes()
        case.after = self.tokens_of(file)
        assert len(case.writes) > 20 and case.after != case.before, case.name
        # The call that gives a file its name is among those that are killed.
        case.names = [k for k, call in enumerate(case.calls, 1) if call.startswith("rename")]
        first = [] if case.appends else ["renameat2" if case.begin is None else "rename"]
        assert [case.calls[k - 1] for k in case.names[:1]] == first, case.name

    def fresh(self, case, name):
        folder = pathlib.Path(f"{case.folder}-{name}")
        folder.mkdir()
        if case.begin is not None:
            shutil.copyfile(case.begin, folder / "text.lhctx")
        return folder

    # ---- What is left

    def verify(self, file, after_kill):
        """Whole, but that a kill inside the writing of a superblock may leave the other one alone."""
        result = self.run(["context", "verify", file])
        torn = r"superblock \d is damaged; the other one serves"
        if after_kill and result.returncode == 2 and re.fullmatch(rf"\S+: {torn}\n", result.stdout.decode()):
            return
        assert result.returncode == 0, f"verify: {result.stdout.decode()}{result.stderr.decode()}"

    def see(self, case, file, after_kill):
        """Which text the file holds: 'old' or 'new', or an AssertionError."""
        if not file.exists():
            assert case.before is None, "neither the old text nor the new one is there"
            return "old"
        if not case.appends:  # these bytes were verified, opened and read before
            content = file.read_bytes()
            if content == case.after_bytes:
                return "new"
            assert case.begin is not None and content == case.begin.read_bytes(), "the file is neither text"
            return "old"
        self.verify(file, after_kill)
        tokens = self.tokens_of(file)
        assert tokens in (case.before, case.after), "the file holds a text that nobody finished"
        return "old" if tokens == case.before else "new"

    def moment(self, case, random_):
        drawn = random_.random()
        if drawn < 0.7:
            call = random_.choice(case.writes)
            return call, "inside", random_.uniform(1, 3000)
        call = random_.choice(case.names) if drawn < 0.75 and case.names else random_.randint(1, len(case.calls))
        return call, random_.choice(("before", "inside", "after", "later")), random_.uniform(1, 3000)

    def disturb(self, case, seed):
        """Begins, kills, and goes on until the command ends by itself; each kill is counted."""
        random_ = random.Random(f"{case.name} {seed}")
        folder = self.fresh(case, seed)
        file = folder / "text.lhctx"
        story = []
        there = False
        try:
            while True:
                log = folder / "log"
                log.unlink(missing_ok=True)
                call, phase, x = self.moment(case, random_)
                env = dict(case.env, **self.preloaded(log), LONGHEADS_KILL_AT=f"{call} {phase} {x:.3f}")
                # Every other time the first kill is the only one.
                result = self.run(case.arguments(folder),
                                  env if not story or not there and random_.random() < 0.5 else case.env)
                if result.returncode == 0:
                    break
                assert result.returncode == -9, result.stderr.decode()
                _, name, phase, n_bytes = log.read_text().split()
                story.append(f"{name} {phase}")
                with self.lock:
                    self.kills[name, phase] += 1
                seen = self.see(case, file, after_kill=True)
                story.append(seen)
                there = there or seen == "new"
            log.unlink(missing_ok=True)
            assert self.see(case, file, after_kill=False) == "new", "the command ended, but the text is not the new one"
            assert file.read_bytes() == case.after_bytes, "the file differs from one that was written undisturbed"
            left = sorted(os.listdir(folder))
            assert left == ["text.lhctx"], f"files were left: {left}"
            shutil.rmtree(folder)
        except AssertionError as error:
            with self.lock:
                self.failures.append(f"{case.name}, seed {seed}, {' > '.join(story)}: {error} (in {folder})")


def main():
    with Crashes.begun(kills=200, seed=1) as (crashes, options):
        cases = crashes.cases()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            seed = options.seed
            while crashes.kills.total() < options.kills and not crashes.failures:
                list(pool.map(lambda case, s=seed: crashes.disturb(case, s), cases))
                seed += 1
        kills = crashes.kills
        inside = sum(n for (call, phase), n in kills.items() if phase == "inside" and call in WRITES)
        for (call, phase), n in sorted(kills.items()):
            print(f"{n:4} {phase} {call}")
        if not any("io_uring_submit" in case.calls for case in cases):
            print("io_uring is not allowed here: pages were written by threads alone")
        print(f"{kills.total()} kills, {inside} of them inside writes")
        for failure in crashes.failures:
            print(failure, file=sys.stderr)
        if crashes.failures:
            return 1
        if 2 * inside < kills.total():
            print("less than half of them were inside writes", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
