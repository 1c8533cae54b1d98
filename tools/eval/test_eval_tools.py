"""The tools beside `longheads eval`: the plots on small results, and the reader of R's strings."""

import csv
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
import zlib

import plot
import r_strings

HERE = pathlib.Path(__file__).parent


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, rows):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)

    def draw(self, *directories):
        command = [sys.executable, "-B", str(HERE / "plot.py"), *map(str, directories), "--out", str(self.root / "svg")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def texts(self, name):
        root = xml.parse(self.root / "svg" / name).getroot()
        return [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]

    def test_both_plots_name_methods_and_lengths(self):
        specs = ("full", "longheads,chunk=128")
        self.write("a/passkey.csv", [{"attn": attn, "length": n, "cases": 10, "correct": 9, "model": "m"}
                                     for attn in specs for n in (4096, 1000)])
        self.write("b/ppl.csv", [{"attn": attn, "length": n, "tokens": 256, "mean_nll": nll, "standard_error": 0.1}
                                 for attn, nll in zip(specs, (3, 9)) for n in (4096, 1000)])
        result = self.draw(self.root / "a", self.root / "b")
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in ("passkey.svg", "ppl.svg"):
            texts = self.texts(name)
            self.assertLess(texts.index("1000"), texts.index("4k"))
            self.assertIn("full", texts)
        self.assertIn("longheads,chunk=128", self.texts("passkey.svg"))
        self.assertIn("| method | 1000 | 4k |\n| --- | --- | --- |\n| `full` | 9/10 (60-98%) | 9/10 (60-98%) |\n", result.stdout)
        self.assertIn("| `full` | 20.1 (16.5-24.4) | 20.1 (16.5-24.4) |\n| `longheads,chunk=128` | 8103 (6661-9858) |", result.stdout)
        self.assertIn("longheads,chunk=128 (8103)", self.texts("ppl.svg"))  # exp(9) is off the scale

    def test_lengths_where_every_case_failed_are_left_out(self):
        self.write("a/passkey.csv", [{"attn": "full", "length": n, "cases": cases, "correct": cases, "failed": 10 - cases}
                                     for n, cases in ((1000, 9), (65536, 0))])
        result = self.draw(self.root / "a")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| `full` | 9/9 (70-100%) |", result.stdout)
        self.write("b/ppl.csv", [{"attn": attn, "length": 1000, "samples": n, "tokens": 256 * n, "mean_nll": 3 * n or "",
                                  "standard_error": 0.1 * n or "", "failed": 1 - n} for attn, n in (("full", 1), ("landmark", 0))])
        result = self.draw(self.root / "b")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| `full` | 20.1 (16.5-24.4) |", result.stdout)
        self.assertNotIn("landmark", result.stdout)
        self.assertNotIn("64k", result.stdout)

    def test_tokens_that_were_read_by_other_calls_before_are_not_more_tokens(self):
        rows = [{"attn": "full", "length": 1024, "tokens": 256, "mean_nll": nll, "standard_error": 0.1, "calls": calls}
                for calls, nll in (("768", 2), ("256 768", 3), ("256 768", 3))]
        value, low, high = plot.series_of(rows, plot.Perplexity())["full"][0][1:]
        self.assertAlmostEqual(value, math.exp(3))
        self.assertAlmostEqual(high, math.exp(3 + plot.Z * 0.1 / math.sqrt(2)))

    def test_speeds_of_other_threads_are_another_line(self):
        rows = [{"attn": "full", "length": 1024, "prefill": speed, "decode": speed, "threads": threads}
                for threads, speed in (("1", 10), ("2", 20))]
        self.assertEqual(set(plot.group(rows)), {"full, 1", "full, 2"})

    def test_what_varies_is_named_and_what_does_not_is_added_up(self):
        rows = [{"attn": "full", "length": 1024, "cases": 10, "correct": right, "model": model, "compute": "f32"}
                for model, right in (("a", 10), ("a", 5), ("b", 0))]
        series = plot.series_of(rows, plot.Accuracy())
        self.assertEqual({name: line[0][1] for name, line in series.items()}, {"full, a": 75, "full, b": 0})
        series = plot.series_of(rows, plot.Accuracy(), alike=["model"])
        self.assertEqual({name: line[0][1] for name, line in series.items()}, {"full": 50})

    def test_settings_that_do_not_exist_are_refused(self):
        result = self.draw(self.root, "--alike", "colour")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--alike takes some of model,", result.stderr)

    def test_perplexities_add_up_by_tokens(self):
        rows = [{"tokens": 300, "mean_nll": 2, "standard_error": 0.1}, {"tokens": 100, "mean_nll": 4, "standard_error": 0.3}]
        value, low, high = plot.Perplexity().point(rows)
        self.assertAlmostEqual(value, 2.718281828 ** 2.5, places=5)
        # Each mean's error counts by its share of the tokens: sqrt(0.075^2 + 0.075^2).
        self.assertAlmostEqual(high / value, 2.718281828 ** (1.96 * 0.075 * 2**0.5), places=5)
        self.assertAlmostEqual(low * high, value * value, places=5)

    def test_speeds_are_drawn_beside_other_engines(self):
        self.write("a/peers.csv", [{"attn": engine, "length": n, "prefill": speed / n, "decode": 50}
                                   for engine, speeds in (("longheads", (4e6, 5e6, 9e6)), ("other", (2e6,)))
                                   for speed in speeds for n in (512, 4096)])
        result = self.draw(self.root / "a")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| `longheads` | 9766 (7812-1.758e+04) | 1221 (976.6-2197) |\n| `other` | 3906 | 488.3 |", result.stdout)
        for name, ticks in (("prefill.svg", ["200", "20000"]), ("decode.svg", ["50"])):
            self.assertLess({"longheads", "other", "512", "4k", *ticks}, set(self.texts(name)))

    def test_labels_keep_their_distance_and_stay_inside(self):
        self.assertEqual(plot.spread([50, 50, 10], 15, 0, 60), [45, 60, 10])

    def test_nothing_to_draw_is_said(self):
        result = self.draw(self.root)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no passkey.csv", result.stderr)


class RStrings(unittest.TestCase):
    def test_strings_of_several_objects(self):
        def vector(*strings):
            body = b"X\n" + struct.pack(">iiii", 3, 0, 0, 5) + b"UTF-8" + struct.pack(">ii", 16, len(strings))
            return body + b"".join(struct.pack(">ii", 0x40009, len(string)) + string for string in strings)

        objects = [vector(b"one", b""), vector(b"two")]
        file = b"".join(struct.pack(">i", len(data)) + zlib.compress(data) for data in objects)
        self.assertEqual([list(r_strings.strings_of(data)) for data in r_strings.objects_of(file)],
                         [[b"one", b""], [b"two"]])
        with self.assertRaises(SystemExit):
            list(r_strings.strings_of(b"RDX3\n" + bytes(40)))


if __name__ == "__main__":
    unittest.main()
