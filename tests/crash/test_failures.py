"""Lets the program's calls that change files fail, one in each run, with EIO or ENOSPC: the command says so in a sentence
and ends with exit status 2, the text that readers see is the old one or the new one, whole, and the same command, given
again, comes to the bytes of one that nobody disturbed. A failure that does not matter changes nothing.

usage: test_failures.py PROGRAM WRITE_TINY_MODELS KILL_AT_LIBRARY [--most CALLS]
"""

import collections
import concurrent.futures
import errno
import os
import shutil
import sys

import test_kills

CASES = ("ingest-full-uring", "replace-full-tiers-threads", "append-longheads-tiers-uring", "append-longheads-threads")


class Failures(test_kills.Crashes):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.ends = collections.Counter()

    def fail(self, case, call, error):
        """One run of which the call fails, and one that goes on."""
        folder = self.fresh(case, f"{call}-{error}")
        file = folder / "text.lhctx"
        log = folder / "log"
        name = case.calls[call - 1]
        nth = case.calls[:call].count(name)
        try:
            env = dict(case.env, **self.preloaded(log), LONGHEADS_KILL_AT=f"{nth} fail {error} {name}")
            result = self.run(case.arguments(folder), env)
            said = result.stderr.decode()
            if name == "io_uring_submit" and not log.exists():  # how many pages go with one differs from run to run
                assert result.returncode == 0, f"exit status {result.returncode}: {said}"
                assert file.read_bytes() == case.after_bytes, "the file differs from one that was written undisturbed"
                with self.lock:
                    self.ends[name, errno.errorcode[error], "not met"] += 1
                shutil.rmtree(folder)
                return
            assert log.read_text().split()[:3] == [str(nth), name, "fail"], "another call failed"
            log.unlink()
            assert result.returncode in (0, 2), f"exit status {result.returncode}: {said}"
            if result.returncode == 0:
                assert said == "", said
            else:
                assert len(said.splitlines()) == 1 and said.startswith("longheads: "), f"no sentence: {said}"
                self.see(case, file, after_kill=True)
                result = self.run(case.arguments(folder), case.env)
                assert result.returncode == 0, f"it does not go on: {result.stderr.decode()}"
            assert file.read_bytes() == case.after_bytes, "the file differs from one that was written undisturbed"
            left = sorted(os.listdir(folder))
            assert left == ["text.lhctx"], f"files were left: {left}"
            with self.lock:
                self.ends[name, errno.errorcode[error], "refused" if said else "went on"] += 1
            shutil.rmtree(folder)
        except AssertionError as failure:
            with self.lock:
                self.failures.append(f"{case.name}, call {call} ({name}), {errno.errorcode[error]}: {failure} (in {folder})")


def main():
    with Failures.begun(most=40) as (failures, options):  # calls of each command, evenly among all
        cases = failures.cases(CASES)
        assert len(cases) == len(CASES), [case.name for case in cases]
        runs = []
        for case in cases:
            n = len(case.calls)
            some = {1 + i * n // min(n, options.most) for i in range(min(n, options.most))}
            # Of each kind of call one at least, and those that give a file its name.
            kinds = {case.calls.index(kind) + 1 for kind in set(case.calls)}
            for i, call in enumerate(sorted(some | kinds | set(case.names))):
                runs.append((case, call, (errno.EIO, errno.ENOSPC)[i % 2]))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda run: failures.fail(*run), runs))
        for (call, error, end), n in sorted(failures.ends.items()):
            print(f"{n:4} {call} {error}: {end}")
        n_met = sum(n for (_, _, end), n in failures.ends.items() if end != "not met")
        print(f"{n_met} calls failed, {sum(n for (_, _, end), n in failures.ends.items() if end == 'refused')} with a sentence")
        for failure in failures.failures:
            print(failure, file=sys.stderr)
        refused = {call for call, _, end in failures.ends if end == "refused"}
        if not {"pwrite", "fdatasync"} <= refused:
            sys.exit(f"of these calls alone a failure was refused: {sorted(refused)}")
        by_uring = any("io_uring_submit" in case.calls for case in cases)  # where the system has it
        if by_uring and not any(call == "io_uring_submit" and end != "not met" for call, _, end in failures.ends):
            sys.exit("no call to io_uring failed")
        sys.exit(1 if failures.failures else 0)


if __name__ == "__main__":
    main()
