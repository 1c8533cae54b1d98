"""bench/check_ratios.py on a program that says what it is told: what is recorded passes, what is slower does not."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import check_ratios  # noqa: E402

# Writes a sweep of the speeds SPEED gives.
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
a = dict(zip(sys.argv[3::2], sys.argv[4::2]))
rows = [{"attn": m, "compute": a["--compute"], "length": int(n), "kernels": "attention avx9 in f32, more",
         "prefill": {"median": SPEED}, "decode": {"median": 2.0}}
        for m in a["--attn"].split(";") for n in a["--lengths"].split(",")]
pathlib.Path(a["--out"], "sweep.json").write_text(json.dumps({"rows": rows}))
"""


class CheckRatios(unittest.TestCase):
    def check(self, speed, *more):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            program.write_text(PROGRAM.replace("SPEED", speed))
            program.chmod(0o755)
            script = pathlib.Path(folder) / "check_ratios.py"  # with a file of ratios of its own
            script.write_text((ROOT / "bench/check_ratios.py").read_text())
            ratios = {"avx9": {name: 1.0 for name in check_ratios.RATIOS}}
            (script.parent / "ratios.json").write_text(json.dumps(ratios))
            return subprocess.run([sys.executable, "-B", script, "--program", program, *more],
                                  capture_output=True, text=True, check=False)

    def test_the_same_ratios_pass_at_any_speed(self):
        for speed in ("1.0", "0.001"):
            self.assertEqual(self.check(speed).returncode, 0)

    def test_one_that_is_lower_fails_by_name(self):
        done = self.check('1.0 if a["--compute"] == "int8" else 1.5')
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("lower than recorded: int8 to f32, prompt of 512", done.stdout)
        self.assertEqual(self.check('1.0 if a["--compute"] == "int8" else 1.5', "--tolerance", "0.4").returncode, 0)

    def test_ratios_are_recorded_for_what_ran_here_once(self):
        recorded = json.loads((ROOT / "bench/ratios.json").read_text())
        for ratios in recorded.values():
            self.assertEqual(set(ratios), set(check_ratios.RATIOS))


if __name__ == "__main__":
    unittest.main()
