"""The independent reader of context files against files that the program's own code wrote.

Usage: test_verify.py WRITE_CONTEXT_FILES
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "context"))
import verify  # noqa: E402

WRITER = None  # the program that writes the files


class Verify(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run([WRITER, cls.folder.name], check=True)
        cls.cases = json.loads(cls.path("cases.json").read_text(encoding="utf-8"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return pathlib.Path(cls.folder.name) / name

    def test_finds_what_the_program_finds(self):
        n_found = 0
        for name, expected in self.cases.items():
            if expected is None:
                continue
            with self.subTest(name):
                text = verify.read(self.path(f"{name}.lhctx"))
                self.assertEqual(text.context.metadata, expected["metadata"])
                self.assertEqual(list(text.tokens), expected["tokens"])
                self.assertEqual(list(text.phases), expected["phases"])
                self.assertEqual(text.model_tokens, expected["model_tokens"])
                self.assertEqual([list(text.pages[slot]) for slot in range(len(text.pages))], expected["pages"])
                self.assertEqual([[part.hex() for _, part in parts] for parts in text.states], expected["states"])
                self.assertEqual(text.n_checkpoints, expected["checkpoints"])
                self.assertEqual(text.summary()["unfinished"], expected["unfinished"])
                n_found += 1
        self.assertGreaterEqual(n_found, 8)

    def test_refuses_what_the_program_refuses(self):
        refused = [name for name, expected in self.cases.items() if expected is None]
        self.assertGreater(len(refused), 70)
        for name in refused:
            with self.subTest(name), self.assertRaises(verify.Damaged):
                verify.read(self.path(f"{name}.lhctx"))

    def test_finds_the_newest_of_an_interrupted_file(self):
        with self.assertRaises(verify.Damaged):
            verify.read(self.path("not-finished.lhctx"))
        self.assertEqual(len(verify.read(self.path("not-finished.lhctx"), newest=True).tokens), 7)
        self.assertEqual(len(verify.read(self.path("append-interrupted.lhctx")).tokens), 4)
        self.assertEqual(len(verify.read(self.path("append-interrupted.lhctx"), newest=True).tokens), 7)

    def test_never_finds_another_text_in_a_damaged_file(self):
        whole = self.path("whole.lhctx").read_bytes()
        expected = verify.read(self.path("whole.lhctx"))
        state = (expected.tokens, expected.phases, expected.states)
        pages = [slice(at, at + expected.context.page_bytes) for at, _ in expected.pages.values()]
        covered = [slice(0, 3 * verify.BLOCK), *pages]
        damaged = self.path("damaged.lhctx")
        choose = random.Random(1)
        places = sorted(choose.sample(range(len(whole)), 1500) + list(range(2 * verify.BLOCK - 40, 2 * verify.BLOCK)))
        n_refused = 0
        for at in places:
            data = bytearray(whole)
            data[at] ^= 1 << choose.randrange(8)
            damaged.write_bytes(data)
            try:
                text = verify.read(damaged)
            except verify.Damaged:
                n_refused += 1
                continue
            self.assertEqual((text.tokens, text.phases, text.states), state, at)
            in_pages = any(one.start <= at < one.stop for one in covered[1:])
            self.assertFalse(in_pages or at < verify.BLOCK, at)
            if at < 3 * verify.BLOCK:
                self.assertEqual(text.summary()["superblocks"], 1, at)
        self.assertGreater(n_refused, 100)

    def test_the_command_tells_whole_files_from_damaged_ones(self):
        command = [sys.executable, str(ROOT / "tools" / "context" / "verify.py"), "--json"]
        whole = subprocess.run([*command, self.path("whole.lhctx")], capture_output=True, text=True, check=False)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertEqual(json.loads(whole.stdout)["tokens"], 6)
        bad = subprocess.run(
            [*command, self.path("text.lhctx"), self.path("nowhere.lhctx"), self.path("whole.lhctx")],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(bad.returncode, 1)
        self.assertIn("nowhere.lhctx", bad.stderr)
        self.assertIn("text.lhctx is", bad.stderr)
        self.assertEqual(len(bad.stdout.splitlines()), 1)


if __name__ == "__main__":
    WRITER = sys.argv.pop(1)
    unittest.main()
