"""The lints on small repositories made for the purpose: what is right passes, each breach is found."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import layering
import portable
import sizes


class LintTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run_script(self, name):
        script = pathlib.Path(__file__).parent / name
        return subprocess.run(
            [sys.executable, str(script), str(self.root)], capture_output=True, text=True, check=False
        )


SYMBOLS = """a.o:     file format elf64-x86-64

0000000000000000 g     F .text\t0000000000000026 Table
0000000000000000  w    F .text.min\t0000000000000026 .hidden Minimum
0000000000000000 l     F .text\t0000000000000026 Kernel
0000000000000000 g     F .text\t0000000000000026 _ZN6N_AVX36KernelEv
0000000000000000 l     F .text.startup\t0000000000000026 _GLOBAL__sub_I_table
0000000000000000 g     O .data\t0000000000000026 kTable
0000000000000000         *UND*\t0000000000000000 memcpy
"""


class Portable(unittest.TestCase):
    def wide(self, function, instruction="vmovdqu64 (%rax),%zmm0"):
        code = f"a.o:     file format elf64-x86-64\n\n0000000000000000 <{function}>:\n   0:\t{instruction}\n"
        return [name for _, name in portable.problems_of(SYMBOLS, code)]

    def test_what_others_call_or_runs_at_the_start_is_found(self):
        for function in ("Table", "Minimum", "_GLOBAL__sub_I_table"):
            self.assertEqual(self.wide(function), [function])
        self.assertEqual(self.wide("Table", "kmovw  %eax,%k1"), ["Table"])
        self.assertEqual(self.wide("Table", "vzeroupper "), ["Table"])
        self.assertEqual(self.wide("Table", "tilerelease"), ["Table"])

    def test_kernels_may(self):
        for function in ("Kernel", "_ZN6N_AVX36KernelEv"):
            self.assertEqual(self.wide(function), [])

    def test_other_instructions_are_fine(self):
        for instruction in ("movups (%rax),%xmm0", "call   12 <vadd>"):
            self.assertEqual(self.wide("Table", instruction), [])


class Layering(LintTest):
    def problem(self, name, include):
        self.write(name, f"// Purpose.\n#include {include}\n")
        return layering.problems_of(self.root)

    def test_lower_floors_and_ones_own_are_allowed(self):
        self.write("src/kv/page.h", '#include "base/result.h"\n#include "kernels/a.h"\n#include "kv/b.h"\n')
        self.write("src/kernels/cpu/a.cc", '#include "hwy/highway.h"\n#include <sys/stat.h>\n')
        self.write("src/program/main.cc", '#include "cli/cli.h"\n#include "eval/eval.h"\n')
        self.write("src/kv/page_test.cc", '#include "kv/page.h"\n#include "tests/support/x.h"\n')
        self.write("src/base/CMakeLists.txt", '#include "program/main.h"\n')
        self.assertEqual(layering.problems_of(self.root), [])
        self.assertEqual(self.run_script("layering.py").returncode, 0)

    def test_a_higher_floor_is_found_with_its_line(self):
        [(place, message)] = self.problem("src/base/a.h", '"kernels/gemm.h"')
        self.assertEqual(place, "src/base/a.h:2")
        self.assertIn("kernels/gemm.h", message)

    def test_a_neighbour_is_found(self):
        [(_, message)] = self.problem("src/kernels/a.h", '"rope/frequencies.h"')
        self.assertIn("neighbour", message)

    def test_spacing_and_angle_brackets_hide_nothing(self):
        self.assertEqual(len(self.problem("src/kv/a.cc", "<model/weights.h>")), 1)
        self.write("src/kv/a.cc", '  #  include   "model/weights.h"  // indented\n')
        self.assertEqual(len(layering.problems_of(self.root)), 1)

    def test_tests_keep_the_floors_too(self):
        self.assertEqual(len(self.problem("src/kv/a_test.cc", '"engine/engine.h"')), 1)

    def test_code_does_not_include_tests(self):
        self.assertEqual(len(self.problem("src/kv/a.cc", '"tests/support/x.h"')), 1)

    def test_paths_begin_at_src(self):
        self.assertEqual(len(self.problem("src/kv/a.cc", '"page.h"')), 1)

    def test_a_folder_without_a_floor_is_found(self):
        self.assertEqual(len(self.problem("src/helpers/a.cc", '"base/result.h"')), 1)
        self.assertEqual(len(self.problem("src/b.cc", '"base/result.h"')), 2)

    def test_the_script_names_the_place_and_fails(self):
        self.problem("src/rope/a.h", '"model/weights.h"')
        result = self.run_script("layering.py")
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/rope/a.h:2", result.stdout)


class Sizes(LintTest):
    def test_a_thousand_lines_and_a_megabyte_are_allowed(self):
        self.write("src/a.cc", "\n" * 1000)
        self.write("tests/golden/a.jsonl", "x" * 1_000_000)
        self.write("tests/golden/made.md", "\n" * 2000)
        self.write("build/large.cc", "\n" * 2000)
        self.assertEqual(sizes.problems_of(self.root), [])

    def test_longer_and_larger_files_are_found(self):
        self.write("src/a.cc", "\n" * 1001)
        self.write("tests/golden/b.npy", "x" * 1_000_001)
        names = [name for name, _ in sizes.problems_of(self.root)]
        self.assertEqual(names, ["src/a.cc", "tests/golden/b.npy"])
        result = self.run_script("sizes.py")
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/a.cc: 1001 lines", result.stdout)

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_in_a_git_repository_what_it_ignores_is_left_alone(self):
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.write(".gitignore", "ignored/\n")
        self.write("ignored/a.cc", "\n" * 1001)
        self.write("new/a.cc", "\n" * 1001)
        self.assertEqual([name for name, _ in sizes.problems_of(self.root)], ["new/a.cc"])


if __name__ == "__main__":
    unittest.main()
