"""The peak of a process's memory is what `info -c N` says: at most 5% and the program's own above it, and not below.

usage: test_memory.py PROGRAM WRITE_TINY_MODELS [unittest arguments]
"""

import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import types
import unittest

from test_context_files import text_of

PROGRAM = ""
MODELS = pathlib.Path()
SCRATCH = pathlib.Path()


def argv(command):
    return [PROGRAM, *map(str, command)]


class Budget(unittest.TestCase):
    """The model has 64 KiB of keys and values a token, and 2.5 MB of weights."""

    LONG = text_of(1, 1600)
    SHORT = text_of(1, 500)
    TINY = text_of(1, 60)  # with question and answer one page a head, and nearly all of it
    METHOD = ["--attn", "longheads,chunk=64,window=256,begin=512", "--compute", "f32"]
    # Between two peaks, beside 5% of what is planned between them: the plan's parts are printed in tenths of a MiB, and
    # what the allocator holds back differs by a MiB or, where the system gives it huge pages, by one of those.
    APART = 3 << 20

    def setUp(self):
        if b"__asan_init" in pathlib.Path(PROGRAM).read_bytes():
            self.skipTest("the address sanitizer takes memory of its own")
        self.file = SCRATCH / f"{self.id()}.lhctx"

    def must(self, command):
        result = subprocess.run(argv(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        self.assertEqual(result.returncode, 0, (command[:2], result.stderr))
        return result.stdout

    def plan(self, text, threads, *options):
        """Of a text with question and answer; bytes. `own` is what the program itself may take beside the total."""
        deep = MODELS / "deep.gguf"
        n_tokens = len(self.must(["tokenize", "-m", deep, "-p", text]).split())
        info = self.must(["info", deep, "-c", n_tokens + 20, "-t", threads, *self.METHOD, *options]).decode()
        def sizes(line):
            line = next(found for found in info.splitlines() if found.startswith(line + " "))
            return [float(size) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
                    for size, unit in re.findall(r"([0-9.]+) (B|[KM]iB)\b", line)]
        total, weights, working, text, own = sizes("memory")
        kv, tables, state, blocks = sizes("text")
        self.assertAlmostEqual(total, weights + working + text, delta=0.3 * (1 << 20))
        self.assertAlmostEqual(text, kv + tables + state + blocks, delta=0.3 * (1 << 20))
        return types.SimpleNamespace(total=total, weights=weights, working=working, text=text, kv=kv, blocks=blocks,
                                     own=own)

    def peak(self, command):
        process = subprocess.Popen(argv(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, command)
        # A process begins with the size of who started it.
        self.assertGreater(used.ru_maxrss, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "Budget must run alone")
        return used.ru_maxrss * 1024

    def reads(self, text, threads, *options):
        with_model = ["-m", MODELS / "deep.gguf", "-t", threads, *self.METHOD, *options]
        yield ["run", "--no-chat", "-p", text, "-n", 2, *with_model]
        yield ["ingest", "-p", text, "-o", self.file, "--restart", *with_model]

    def peak_of_asking(self, text, threads, *options):
        self.must([*self.reads(text, threads, *options)][1])
        return self.peak(["ask", self.file, "-q", "who?", "-n", 2, "-m", MODELS / "deep.gguf", "-t", threads, *options])

    def grows_as_planned(self, text, threads, *options):
        plan, least = self.plan(text, threads, *options), self.plan(self.TINY, threads, *options)
        planned = plan.total - least.total
        for read, of_tiny in zip(self.reads(text, threads, *options), self.reads(self.TINY, threads, *options)):
            peak = self.peak(read)
            grown = peak - self.peak(of_tiny)
            case = (read[0], threads, *options)
            self.assertLess(grown, 1.05 * planned + self.APART, case)
            self.assertGreater(grown, 0.95 * planned - self.APART, case)
            self.assertLess(peak, 1.05 * plan.total + plan.own, case)
            self.assertGreater(peak, plan.total, case)  # all of it is used, and the program itself comes to it

    def test_reading_keeps_to_it(self):
        self.grows_as_planned(self.LONG, 2)
        self.grows_as_planned(self.LONG, 2, "--kv-ram", "32m")
        self.assertGreater(self.plan(self.LONG, 2).total, 5 * self.plan(self.LONG, 2, "--kv-ram", "32m").total)

    def test_reading_keeps_to_it_with_any_number_of_threads(self):
        for threads in (1, 4):
            self.grows_as_planned(self.SHORT, threads, "--kv-ram", "32m")

    def test_other_methods_and_types_keep_to_it(self):
        methods = (["--attn", "infllm,n_init=16,n_local=128,block=64,top_k=2,exec_block=128", "--compute", "int8",
                    "--kv-type", "q8"],
                   ["--attn", "esa,n_init=16,n_local=128,k=64,chunk=128,score=exact", "--compute", "f32"],
                   ["--attn", "quest,budget=256", "--compute", "f32", "--kv-type", "bf16"],
                   ["--attn", "self-extend,group=4,window=512", "--compute", "f32", "--kv-type", "bf16"],
                   ["--attn", "lm-infinite,global=4,local=500", "--compute", "f32"],
                   ["--attn", "full", "--compute", "f32"],
                   ["--attn", "rerope,window=384", "--compute", "f32"],
                   ["--attn", "leaky-rerope,window=384", "--compute", "f32"],
                   ["--attn", "streaming-llm,start=4,recent=500", "--compute", "f32"],
                   ["--attn", "streaming-llm,start=4,recent=500,form=chunk-safe", "--compute", "f32"],
                   ["--attn", "moba,chunk=64,top_k=3", "--compute", "f32"],
                   ["--attn", "landmark,block=63,top_k=3,token=1", "--compute", "f32"])
        for i, method in enumerate(methods):
            self.METHOD = method
            plan = self.plan(self.LONG, 2, "--kv-ram", "32m")
            with self.subTest(method=method):
                peak = self.peak(list(self.reads(self.LONG, 2, "--kv-ram", "32m"))[i % 2])  # run and ingest in turn
                self.assertLess(peak, 1.05 * plan.total + plan.own)
                self.assertGreater(peak, plan.total)

    def test_pages_make_room_for_all_else_that_is_kept_of_the_text(self):
        """Quest keeps vectors for each block of 16 tokens: two thirds of --kv-ram, of which pages have what is left."""
        self.METHOD = ["--attn", "quest,budget=256", "--compute", "f32", "--kv-type", "bf16"]
        limit = 32 << 20
        plan = self.plan(self.LONG, 2, "--kv-ram", "32m")
        self.assertLess(plan.kv, limit / 2)
        self.assertAlmostEqual(plan.text, limit, delta=0.3 * (1 << 20))
        least = self.plan(self.TINY, 2, "--kv-ram", "32m")
        long, tiny = (next(self.reads(text, 2, "--kv-ram", "32m")) for text in (self.LONG, self.TINY))
        peak = self.peak(long)
        self.assertLess(peak - self.peak(tiny), 1.05 * (plan.total - least.total) + self.APART)
        self.assertLess(peak, 1.05 * (plan.weights + limit) + plan.working + plan.own)

    def test_pages_make_room_for_larger_blocks(self):
        """Blocks of 4096 tokens behind 16384, where half of that would do for a faster disk."""
        text, limit = text_of(1, 4600), 192 << 20
        options = ["--kv-ram", "192m", "--kv-blocks", 4, "--kv-type", "bf16"]
        plan, least = self.plan(text, 2, *options), self.plan(self.TINY, 2, *options)
        self.assertGreater(plan.blocks, 16 << 20)
        self.assertAlmostEqual(plan.text, limit, delta=0.3 * (1 << 20))
        for read, of_tiny in zip(self.reads(text, 2, *options), self.reads(self.TINY, 2, *options)):
            peak = self.peak(read)
            self.assertLess(peak - self.peak(of_tiny), 1.05 * (plan.total - least.total) + self.APART, read[0])
            self.assertLess(peak, 1.05 * (plan.weights + limit) + plan.working + plan.own, read[0])

    def test_says_where_all_else_is_more_than_it(self):
        command = ["info", MODELS / "deep.gguf", "-c", 6000, "--compute", "f32", "--kv-ram", "32m", "--attn"]
        for method, more in (("quest,budget=256", False), ("self-extend,group=4,window=512", True)):
            self.assertEqual(b"more than --kv-ram" in self.must([*command, method]), more, method)
        read = ["run", "-m", MODELS / "deep.gguf", "--no-chat", "-p", text_of(1, 900), "-n", 1, "--compute", "f32",
                "--attn", "self-extend,group=4,window=512", "--kv-ram"]
        for ram, less in (("8m", True), ("1g", False)):
            told = subprocess.run(argv([*read, ram]), stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertEqual(b"stay in memory whatever it says" in told.stderr, less, told.stderr)

    def test_asking_keeps_to_it(self):
        """One page a head of the text and one of the question fill --kv-ram; what is known of the others is added."""
        for text, threads in ((self.SHORT, 1), (self.LONG, 2), (self.SHORT, 4)):
            options = ["--kv-ram", "32m"]
            plan, least = self.plan(text, threads, *options), self.plan(self.TINY, threads, *options)
            peak = self.peak_of_asking(text, threads, *options)
            grown = peak - self.peak_of_asking(self.TINY, threads, *options)
            planned = plan.text - plan.kv - (least.text - least.kv)
            self.assertLess(grown, 1.05 * planned + self.APART, threads)
            self.assertLess(peak, 1.05 * plan.total + plan.own, threads)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        MODELS = pathlib.Path(name) / "models"
        SCRATCH = pathlib.Path(name) / "scratch"
        SCRATCH.mkdir()
        subprocess.run([sys.argv[2], str(MODELS)], check=True)
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
