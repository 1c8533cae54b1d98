"""What `longheads bench` prints and writes: this machine's limits, kernels, sweeps.

usage: test_bench.py PROGRAM WRITE_TINY_MODELS [unittest arguments]
"""

import csv
import json
import unittest
import xml.etree.ElementTree

import test_program
from test_program import run


class Limits(unittest.TestCase):
    def test_limits_of_this_machine(self):
        result = run("bench", "limits", "--repeats", 1, "--threads", 1, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        limits = json.loads(result.stdout)
        self.assertEqual(limits["threads"], 1)
        self.assertGreater(limits["read"]["median"], 0)

    def test_files_of_limits(self):
        out = test_program.SCRATCH / self.id()
        result = run("bench", "limits", "--repeats", 1, "--threads", 1, "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        limits = json.loads((out / "limits.json").read_text())
        with open(out / "limits.csv", newline="") as file:
            rows = {row["limit"]: row for row in csv.DictReader(file)}
        self.assertEqual(set(rows), {name for name, value in limits.items() if isinstance(value, dict)})
        self.assertAlmostEqual(float(rows["read"]["median"]) / limits["read"]["median"], 1, 4)
        drawing = xml.etree.ElementTree.parse(out / "limits.svg").getroot()
        words = {element.text for element in drawing.iter() if element.tag.endswith("}text")}
        self.assertLessEqual({"read from memory", "products in f32"}, words)


class Kernels(unittest.TestCase):
    def test_a_table_and_files_of_kernels(self):
        out = test_program.SCRATCH / self.id()
        result = run("bench", "kernels", "--filter", "scores/", "--repeats", 2, "--threads", 1, "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        table = result.stdout.decode().splitlines()
        self.assertRegex(table[-1], r"^scores/\w+/rows:480/chunks:512 .* GOP/s +\d+%$")
        kernels = json.loads((out / "kernels.json").read_text())["kernels"]
        self.assertEqual([kernel["n"] for kernel in kernels], [2] * len(kernels))
        self.assertEqual(len((out / "kernels.csv").read_text().splitlines()), len(kernels) + 1)
        drawing = xml.etree.ElementTree.parse(out / "kernels.svg").getroot()
        words = {element.text for element in drawing.iter() if element.tag.endswith("}text")}
        self.assertLessEqual({kernel["name"] for kernel in kernels}, words)

    def test_kernels_that_are_not_there(self):
        for options in (("--filter", "("), ("--filter", "nothing"), ("--repeats", 0), ("--threads", -1)):
            result = run("bench", "kernels", *options)
            self.assertEqual(result.returncode, 2, options)
            self.assertTrue(result.stderr, options)

    def test_a_wrong_filter_leaves_no_folder(self):
        out = test_program.SCRATCH / self.id()
        self.assertEqual(run("bench", "kernels", "--filter", "nothing", "--out", out).returncode, 2)
        self.assertFalse(out.exists())


class Sweep(unittest.TestCase):
    def test_a_table_and_files_of_a_sweep(self):
        out = test_program.SCRATCH / self.id()
        result = run("bench", "sweep", "-m", test_program.MODELS / "plain.gguf", "--attn", "full;streaming-llm", "--lengths",
                     "100,40", "--repeats", 2, "-n", 3, "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        table = result.stdout.decode().splitlines()
        self.assertRegex(table[0], r" \d+ threads; median")
        self.assertEqual([line.split()[:2] for line in table[-4:]],
                         [["full", "40"], ["full", "100"], ["streaming-llm", "40"], ["streaming-llm", "100"]])
        rows = json.loads((out / "sweep.json").read_text())["rows"]
        self.assertEqual([(row["attn"], row["length"], row["prefill"]["n"], row["decode"]["n"]) for row in rows],
                         [(attn, n, 2, 6) for attn in ("full", "streaming-llm") for n in (40, 100)])
        lines = (out / "sweep.csv").read_text().splitlines()
        self.assertEqual(len(lines), 5)
        self.assertTrue(lines[1].startswith("full,40,"))
        for name in ("prefill", "decode", "memory"):
            drawing = xml.etree.ElementTree.parse(out / f"sweep-{name}.svg").getroot()
            words = {element.text for element in drawing.iter() if element.tag.endswith("}text")}
            self.assertLessEqual({"full", "streaming-llm", "40", "100"}, words)
        # More lines than one drawing tells apart, and nothing generated: nothing of the earlier drawings stays.
        methods = ";".join(["full", *(f"streaming-llm,recent={n}" for n in range(32, 38))])
        result = run("bench", "sweep", "-m", test_program.MODELS / "plain.gguf", "--attn", methods, "--lengths", 40, "--repeats", 1,
                     "-n", 0, "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual({path.name for path in out.iterdir()},
                         {"sweep.csv", "sweep.json", "sweep-prefill-1.svg", "sweep-prefill-2.svg", "sweep-memory-1.svg",
                          "sweep-memory-2.svg"})

    def test_beside_everything_in_memory(self):
        out = test_program.SCRATCH / self.id()
        result = run("bench", "sweep", "-m", test_program.MODELS / "plain.gguf", "--attn", "full", "--lengths", 6000,
                     "--repeats", 1, "-n", 9, "--kv-ram", "2m", "--kv-disk", test_program.SCRATCH, "--beside-memory", "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout.decode(), r"full, 6000 tokens: a token takes [\d.]+ times what it takes with everything in memory")
        row = json.loads((out / "sweep.json").read_text())["rows"][0]
        self.assertEqual((row["decode"]["n"], row["decode_in_memory"]["n"]), (9, 9))
        self.assertAlmostEqual(row["time_to_memory"], row["decode_in_memory"]["mean"] / row["decode"]["mean"], 6)
        for options in ((), ("--kv-ram", "2m", "-n", 0)):
            result = run("bench", "sweep", "-m", test_program.MODELS / "plain.gguf", "--lengths", 40, "--beside-memory", *options)
            self.assertEqual(result.returncode, 2, options)
            self.assertIn(b"--beside-memory", result.stderr)

    def test_a_folder_that_cannot_be_written_is_found_before_the_work(self):
        taken = test_program.SCRATCH / "taken"
        taken.write_text("a file")
        result = run("bench", "sweep", "-m", test_program.MODELS / "plain.gguf", "--attn", "full", "--lengths", 40, "--out", taken)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"taken", result.stderr)
        self.assertEqual(result.stdout, b"")

    def test_what_cannot_be_measured(self):
        for options in (("--repeats", 0), ("--lengths", 0), ("-n", -1), ("--attn", "ful"), ("--lengths", "40,x")):
            result = run("bench", "sweep", "-m", test_program.MODELS / "plain.gguf", *options)
            self.assertEqual(result.returncode, 2, options)
            self.assertTrue(result.stderr, options)


if __name__ == "__main__":
    test_program.main()
