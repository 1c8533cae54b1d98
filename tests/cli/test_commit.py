"""cmake/commit.cmake, which names the commit that a program is built from: test_commit.py CMAKE"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE = sys.argv[1]
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "commit.cmake"


class Commit(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.source, self.out = self.folder / "source", self.folder / "build" / "include" / "commit.h"
        self.source.mkdir()
        (self.source / "file").write_text("one")

    def commit(self, **env):
        subprocess.run([CMAKE, f"-DSOURCE={self.source}", f"-DOUT={self.out}", "-P", SCRIPT], check=True, cwd=self.folder,
                       env={**os.environ, **env})
        begin = '#define LONGHEADS_COMMIT "'
        text = self.out.read_text()
        self.assertTrue(text.startswith(begin) and text.endswith('"\n'), text)
        return text[len(begin):-2]

    def git(self, *words, cwd=None):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false", *words], cwd=cwd or self.source, check=True,
                              stdout=subprocess.PIPE, text=True).stdout.strip()

    def test_sources_without_history_or_without_git(self):
        self.assertEqual(self.commit(), "unknown")
        self.assertEqual(self.commit(PATH=""), "unknown")

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_a_checkout_says_its_commit_and_that_it_was_changed(self):
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-qm", "one")
        commit = self.git("rev-parse", "HEAD")[:12]
        self.assertEqual(self.commit(), commit)
        written = self.out.stat().st_mtime_ns
        self.assertEqual(self.commit(), commit)
        self.assertEqual(self.out.stat().st_mtime_ns, written)  # so that nothing is built again
        (self.source / "file").write_text("two")
        self.assertEqual(self.commit(), commit + "-dirty")

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_sources_inside_another_checkout_do_not_take_its_commit(self):
        self.git("init", "-q", cwd=self.folder)
        self.git("add", ".", cwd=self.folder)
        self.git("commit", "-qm", "another's", cwd=self.folder)
        self.assertEqual(self.commit(), "unknown")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
