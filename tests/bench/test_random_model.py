"""Models of random weights are whole, the same for the same seed, and answer with numbers.

usage: test_random_model.py PROGRAM WRITE_TINY_MODELS
"""

import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, WRITE_TINY_MODELS = sys.argv[1:3]
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "random_model.py"
sys.path.insert(0, str(SCRIPT.parent))
import random_model  # noqa: E402


class RandomModel(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.scratch = pathlib.Path(self.folder.name)
        subprocess.run([WRITE_TINY_MODELS, self.scratch], check=True)

    def write(self, name, types, *options):
        path = self.scratch / name
        subprocess.run([sys.executable, "-B", SCRIPT, "test", types, path, "--vocabulary", self.scratch / "plain.gguf",
                        *options], check=True, stdout=subprocess.DEVNULL)
        return path

    def test_every_mix_is_read_and_answers(self):
        for types in [*random_model.TYPES, "Q4_K_M", "Q5_K_M"]:
            with self.subTest(types=types):
                path = self.write(f"{types}.gguf", types)
                result = subprocess.run([PROGRAM, "run", "-m", path, "--no-chat", "-p", "Hello", "-n", "3", "--quiet"],
                                        capture_output=True)
                self.assertEqual(result.returncode, 0, result.stderr)
                info = subprocess.run([PROGRAM, "info", path], capture_output=True, check=True).stdout.decode()
                self.assertIn("131072 tokens (trained)", info)
                self.assertIn(types.replace("_M", ""), info)

    def test_the_seed_decides(self):
        one = self.write("one.gguf", "Q4_K_M").read_bytes()
        self.assertEqual(one, self.write("same.gguf", "Q4_K_M", "--seed", "1").read_bytes())
        self.assertNotEqual(one, self.write("other.gguf", "Q4_K_M", "--seed", "2").read_bytes())

    def test_weights_have_the_deviation_that_is_promised(self):
        # From the formats' definitions: four-bit numbers times a scale, less a minimum or an offset.
        draw = random_model.random.Random(3).randbytes
        values = []
        for _ in range(200):
            block = random_model.q4_k(draw)
            d, dmin = struct.unpack_from("<2e", block)
            values += [d * 32 * q - dmin * 32 for byte in block[16:] for q in (byte & 15, byte >> 4)]
        self.assertAlmostEqual(statistics.mean(values), 0, delta=0.001)
        self.assertAlmostEqual(statistics.pstdev(values), random_model.DEVIATION, delta=0.001)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
