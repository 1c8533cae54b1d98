"""bench/peers/compare.py with a peer that does what it is told: figures, bounds where it is ended, its last words."""

import csv
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
import blocks  # noqa: E402
import compare  # noqa: E402


class Peer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def time(self, body, limit=None, blocks=None):
        worker = self.folder / "worker.py"
        worker.write_text(f"import sys, time\n{body}\n")
        return compare.time_peer(sys.executable, worker, "model", 1000, 4, 2, 1, limit, blocks)

    def test_says_its_figures_last(self):
        said = self.time("print('loading')\nprint('\\nbegin', flush=True)\nprint('x')\n"
                         "print('{\"prefill\": 5.0, \"decode\": 2.0}')", limit=60)
        self.assertEqual(said, {"prefill": 5.0, "decode": 2.0})

    def test_is_told_how_many_blocks_to_time(self):
        echo = "print('begin')\nprint('{\"prefill\": %d}' % len(sys.argv))"
        self.assertEqual([self.time(echo, blocks=n)["prefill"] for n in (None, 9)], [6, 7])

    def test_is_ended_where_it_takes_too_long_from_the_timed_prompt_on(self):
        said = self.time("time.sleep(1)\nprint('\\nbegin', flush=True)\n"
                         "print('{\"prefill\": 5.0, \"decode\": 2.0}')", limit=0.9)
        self.assertEqual(said["prefill"], 5.0)
        said = self.time("print('...begin', flush=True)\ntime.sleep(60)", limit=0.2)
        self.assertEqual(said, {"prefill": None, "decode": None})

    def test_without_figures_is_told_so(self):
        with self.assertRaisesRegex(SystemExit, "no figures"):
            self.time("print('{}')", limit=60)

    def test_that_fails_is_quoted(self):
        for body in ("sys.exit('no such model')", "print('\\nbegin', flush=True)\nsys.exit('no such model')"):
            with self.assertRaisesRegex(SystemExit, "no such model"):
                self.time(body, limit=60)


class Compared(unittest.TestCase):
    OURS = [{"prefill": 100.0, "decode": 30.0}, {"prefill": 80.0, "decode": 20.0}]

    def test_ratios_repeat_by_repeat(self):
        theirs = [{"prefill": 50.0, "decode": 10.0}, {"prefill": 20.0, "decode": 10.0}]
        said = compare.compared(self.OURS, theirs, 1000, 60, None)
        self.assertTrue(said["prefill"].endswith("ratio 3 (2-4)"), said)
        self.assertTrue(said["decode"].endswith("ratio 2.5 (2-3)"), said)

    def test_bounds_where_a_peer_was_ended(self):
        # Ours take 12 and 15.5 s for 1000 tokens and 60 after them; the peer more than 90, and 68.5.
        theirs = [{"prefill": None, "decode": None}, {"prefill": 16.0, "decode": 10.0}]
        said = compare.compared(self.OURS, theirs, 1000, 60, limit=90)
        self.assertEqual(list(said), ["prompt and answer"])
        self.assertTrue(said["prompt and answer"].endswith("ratio at least 5.96 (4.419-7.5)"), said)


class Blocks(unittest.TestCase):
    def test_are_evenly_apart(self):
        self.assertEqual(blocks.evenly(2, 64), {0, 63})
        self.assertEqual(blocks.evenly(9, 65), set(range(0, 65, 8)))
        self.assertEqual(blocks.evenly(4, 64), {0, 21, 42, 63})
        self.assertEqual(blocks.evenly(5, 3), {0, 1, 2})
        self.assertEqual(blocks.evenly(2, 1), {0})

    def test_those_between_lie_on_a_line(self):
        self.assertEqual(blocks.sum_of_all({0: 1.0, 2: 3.0, 3: 10.0}, 4), 1 + 2 + 3 + 10)
        self.assertEqual(blocks.sum_of_all({0: 4.0}, 1), 4)
        self.assertEqual(blocks.sum_of_all({0: 1.0, 63: 64.0}, 64), sum(range(1, 65)))


class Known(unittest.TestCase):
    def below(self, peer, model, length, *runs, kind="Zen 4"):
        theirs = [{"prefill": prefill, "decode": decode} for prefill, decode in runs]
        return compare.below_known(compare.PEERS[peer], kind, model, length, theirs)

    def test_a_peer_that_is_too_slow_is_told(self):
        slow = self.below("llama.cpp", compare.RANDOM, 512, (120, 37), (108, 37), (100, 38))
        self.assertEqual(slow, ["512 tokens, prefill: 134 tokens/s are known of this kind of processor"])
        self.assertEqual(len(self.below("openvino", compare.DEFAULT, 16384, (350, 23.3))), 2)
        self.assertEqual(self.below("openvino", compare.DEFAULT, 16384, (352, 23.5)), [])
        self.assertEqual(len(self.below("openvino", compare.DEFAULT, 16384, (352, 23.5), kind="AMX")), 1)

    def test_nothing_is_told_of_what_is_not_known(self):
        self.assertEqual(self.below("openvino", compare.DEFAULT, 100, (1, 1)), [])
        self.assertEqual(self.below("openvino", "another", 512, (1, 1)), [])
        self.assertEqual(self.below("openvino", compare.DEFAULT, 512, (None, None)), [])
        self.assertEqual(self.below("openvino", compare.DEFAULT, 512, (1, 1), kind=None), [])
        self.assertEqual(self.below("llama.cpp", compare.DEFAULT, 512, (1, 1), kind="AMX"), [])

    def test_processors_are_told_apart(self):
        self.assertEqual(compare.kind(25, {"avx512f", "avx512_bf16"}), "Zen 4")
        self.assertIsNone(compare.kind(25, {"avx2"}))  # Zen 3
        self.assertIsNone(compare.kind(26, {"avx512_bf16"}))  # Zen 5
        self.assertEqual(compare.kind(6, {"avx512_bf16", "amx_bf16"}), "AMX")

    def test_models_are_known_by_the_name_in_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "longheads"
            for family, name in (("llama (random 1.1B Q4_K_M)", "random 1.1B Q4_K_M"), ("llama", "")):
                program.write_text(f"#!/bin/sh\necho 'file            '\"$2\"\necho 'family          {family}'\necho 'window          8 (x)'\n")
                program.chmod(0o755)
                self.assertEqual(compare.name_of(program, "model.gguf"), name)


class Written(unittest.TestCase):
    def test_lines_go_behind_others_of_the_same_columns(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results" / "peers.csv"
            for prefill in (1.5, 2.5):
                compare.check_columns(path)
                compare.write_down(path, [{"attn": "a,b", "prefill": prefill}])
            with open(path, newline="", encoding="utf-8") as file:
                self.assertEqual([row["prefill"] for row in csv.DictReader(file)], ["1.5", "2.5"])
            path.write_text("attn,prefill\n")
            with self.assertRaisesRegex(SystemExit, "other columns"):
                compare.check_columns(path)

    def test_results_have_these_columns(self):
        for path in (ROOT / "docs" / "results" / "speed").glob("**/peers.csv"):
            compare.check_columns(path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
