"""The program as its users meet it: what it prints where, and its exit statuses.

usage: test_program.py PROGRAM WRITE_TINY_MODELS [unittest arguments]
"""

import array
import csv
import fcntl
import json
import math
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ""
MODELS = pathlib.Path()
SCRATCH = pathlib.Path()


def run(*arguments, stdin=b"", env=None, timeout=120):
    environment = dict(os.environ, **(env or {}))
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, timeout=timeout,
                          env=environment)


def write_ids(path, ids):
    body = array.array("i", ids).tobytes()
    header = ("{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }" % len(ids)).encode()
    header = header.ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body)


def read_floats(path):
    data = path.read_bytes()
    n_header = struct.unpack("<H", data[8:10])[0]
    values = array.array("f")
    values.frombytes(data[10 + n_header:])
    return values


def handles_ctrl_c(pid):
    """Whether a process has a handler for SIGINT: before it has, Ctrl-C ends it at once."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)
    return False


def run_with(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120):
    """The exit status where stdout and stderr are what they are said to be."""
    return subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                          timeout=timeout).returncode


def main():
    """The tests of the script that is run; its usage stands at its top."""
    global PROGRAM, MODELS, SCRATCH
    PROGRAM = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        MODELS = pathlib.Path(folder) / "models"
        SCRATCH = pathlib.Path(folder) / "scratch"
        SCRATCH.mkdir()
        subprocess.run([sys.argv[2], str(MODELS)], check=True)
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)


class ClosedAndFullStreams(unittest.TestCase):
    ANSWER = ["run", "--no-chat", "-p", "Hello", "-n", 30]

    def answer(self):
        return [*self.ANSWER, "-m", MODELS / "plain.gguf"]

    def test_notes_that_nobody_takes_do_not_end_the_work(self):
        with open("/dev/full", "wb") as full:
            self.assertEqual(run_with(*self.answer(), stderr=full), 0)
        reader, writer = os.pipe()
        os.close(reader)  # whoever read has left
        self.assertEqual(run_with(*self.answer(), stderr=writer), 0)
        self.assertEqual(run_with("run", "-m", SCRATCH / "missing.gguf", "-p", "a", stderr=writer), 2)
        os.close(writer)
        closed = subprocess.run(["sh", "-c", '"$0" "$@" 2>&-', PROGRAM, *map(str, self.answer())],
                                stdout=subprocess.PIPE, timeout=120)
        self.assertEqual(closed.returncode, 0)
        self.assertNotEqual(closed.stdout, b"")

    def test_output_that_cannot_be_written_is_an_error(self):
        for arguments in (self.answer(), ["info", MODELS / "plain.gguf"], ["methods"], ["--help"], ["--version"],
                          ["methods", "longheads", "--markdown"],
                          ["tokenize", "-m", MODELS / "plain.gguf", "-p", "Hello"]):
            with open("/dev/full", "wb") as full:
                self.assertEqual(run_with(*arguments, stdout=full), 2, arguments)


class Answers(unittest.TestCase):
    def test_stdout_carries_the_answer_alone(self):
        result = run("run", "-m", MODELS / "plain.gguf", "--no-chat", "-p", "Hello", "-n", 5)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.endswith(b"\n"))
        self.assertIn(b"tokens", result.stderr)
        quiet = run("run", "-m", MODELS / "plain.gguf", "--no-chat", "-p", "Hello", "-n", 5, "--quiet")
        self.assertEqual((quiet.stdout, quiet.stderr), (result.stdout, b""))

    def test_the_same_from_option_file_and_pipe(self):
        text = "Some text to go on with. " * 20
        file = SCRATCH / "text.txt"
        file.write_text(text)
        common = ["-m", MODELS / "plain.gguf", "--no-chat", "-n", 8, "--quiet"]
        answers = {run("run", *common, "-p", text).stdout, run("run", *common, "-f", file).stdout,
                   run("run", *common, "-", stdin=text.encode()).stdout,
                   run("run", *common, "-f", "-", stdin=text.encode()).stdout}
        self.assertEqual(len(answers), 1)

    def test_json_is_one_object(self):
        result = run("run", "-m", MODELS / "chat.gguf", "-p", "Hello", "-q", "What?", "-n", 4, "--json")
        answer = json.loads(result.stdout)
        self.assertTrue(answer["chat"])
        self.assertLessEqual(answer["answer_tokens"], 4)
        self.assertEqual(len(answer["tokens"]), answer["answer_tokens"])

    def test_what_a_method_counts_is_told(self):
        text = ["-m", MODELS / "plain.gguf", "--no-chat", "-p", "a b c d e f " * 60, "-n", 6]
        infllm = ["--attn", "infllm,n_init=4,n_local=40,block=8,top_k=3,exec_block=16,max_cached_block=5"]
        result = run("run", *text, *infllm, "--json")
        answer = json.loads(result.stdout)
        self.assertEqual(set(answer["counters"]), {"block_cache_hits", "block_cache_misses"})
        hits, misses = answer["counters"]["block_cache_hits"], answer["counters"]["block_cache_misses"]
        # Each is a use of a block: by the prompt's steps and the tokens behind it, in both layers. The answer's last
        # token is read by nobody.
        n = answer["prompt_tokens"]
        steps = [*range(0, n, 16), *range(n, n + answer["answer_tokens"] - 1)]
        self.assertEqual(hits + misses, 2 * sum(min(3, max(0, begin - 40 - 4) // 8) for begin in steps))
        self.assertGreater(hits, 0)
        self.assertGreater(misses, 0)
        self.assertIn(f"counted over all layers: {hits} block cache hits, {misses} block cache misses\n".encode(),
                      result.stderr)
        self.assertEqual(run("run", *text, *infllm, "--quiet").stderr, b"")
        full = run("run", *text, "--attn", "full", "--json")
        self.assertIsNone(json.loads(full.stdout)["counters"])
        self.assertNotIn(b"counted", full.stderr)

        # Behind a context file: of the text and of what was asked of it.
        file = SCRATCH / "counted.lhctx"
        made = run("ingest", *text[:-2], *infllm, "-o", file, "--quiet")
        self.assertEqual(made.returncode, 0, made.stderr)
        asked = run("ask", file, *text[:2], "-q", "What?", "-n", 6, "--json", "--quiet")
        counters = json.loads(asked.stdout)["counters"]
        self.assertGreater(sum(counters.values()), hits + misses)

    def test_seeds_repeat_and_threads_do_not_show(self):
        common = ["run", "-m", MODELS / "plain.gguf", "--no-chat", "-p", "Hello there", "-n", 20, "--quiet"]
        drawn = common + ["--temp", 1.5, "--seed", 7]
        self.assertEqual(run(*drawn).stdout, run(*drawn, "-t", 3).stdout)
        self.assertNotEqual(run(*drawn).stdout, run(*common, "--temp", 1.5, "--seed", 8).stdout)
        self.assertEqual(run(*common, "-t", 1).stdout, run(*common, "-t", 4).stdout)

    def test_long_text_is_read_with_selection_and_full_attention_warns(self):
        text = "a b c d e f " * 200
        for method, warns in (("full", True), ("auto", False), ("longheads,chunk=16,window=64,begin=128", False)):
            result = run("run", "-m", MODELS / "plain.gguf", "--no-chat", "-p", text, "-n", 3, "--attn", method)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(b"warning" in result.stderr, warns, result.stderr)

    def test_integer_products(self):
        command = ["run", "--no-chat", "-p", "Hello", "-n", 3, "--compute", "int8", "-m"]
        result = run(*command, MODELS / "quantised.gguf")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"in int8", result.stderr)
        result = run(*command, MODELS / "plain.gguf")  # float32
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"not quantised", result.stderr)

    def test_reference_kernels_by_force(self):
        said = run("info", MODELS / "plain.gguf", env={"LONGHEADS_BACKEND": "ref"}).stdout
        self.assertRegex(said, rb"kernels +attention ref ")
        self.assertNotIn(b"avx", said)
        wrong = run("info", MODELS / "plain.gguf", env={"LONGHEADS_BACKEND": "neon"})
        self.assertEqual(wrong.returncode, 2)
        self.assertIn(b"LONGHEADS_BACKEND=neon", wrong.stderr)
        result = run("run", "-m", MODELS / "plain.gguf", "--no-chat", "-p", "Hello", "-n", 3, "--backend", "ref")
        self.assertEqual(result.returncode, 0)
        self.assertIn(b"ref", result.stderr)


class Rope(unittest.TestCase):
    """Frequencies change what the model computes; different ways to say the same ones do not."""

    def logits(self, *options, model="plain.gguf"):
        ids = SCRATCH / "rope-ids.npy"
        write_ids(ids, [7 * i % 256 for i in range(60)])
        out = SCRATCH / "rope-logits.npy"
        result = run("logits", "-m", MODELS / model, "--tokens", ids, "--out", out, "--compute", "f32", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return out.read_bytes()

    def test_flags_and_specs_say_the_same(self):
        plain = self.logits("--attn", "full")
        self.assertEqual(plain, self.logits("--attn", "none+full"))
        self.assertEqual(plain, self.logits("--attn", "pi:factor=1+full", "--rope-scaling", "none"))
        pi = self.logits("--attn", "pi:factor=4+full")
        self.assertNotEqual(plain, pi)
        self.assertEqual(pi, self.logits("--attn", "full", "--rope-scale", 4))
        self.assertEqual(pi, self.logits("--attn", "full", "--rope-freq-scale", 0.25))
        yarn = self.logits("--attn", "yarn:factor=4:beta_fast=16")
        self.assertNotEqual(pi, yarn)
        self.assertEqual(yarn, self.logits("--attn", "full", "--rope-scaling", "yarn", "--rope-scale", 4,
                                           "--yarn-beta-fast", 16))
        base = self.logits("--attn", "full", "--rope-freq-base", 20000)
        self.assertNotIn(base, (plain, pi, yarn))

    def test_a_file_declares_its_own(self):
        plain = self.logits("--attn", "full")
        yarn = self.logits("--attn", "yarn:factor=4+full")
        self.assertEqual(yarn, self.logits("--attn", "full", model="yarn.gguf"))
        self.assertEqual(plain, self.logits("--attn", "full", "--rope-scaling", "none", model="yarn.gguf"))
        longrope = self.logits("--attn", "full", model="longrope.gguf")
        self.assertEqual(longrope, self.logits("--attn", "longrope:table=long", model="longrope.gguf"))
        self.assertNotEqual(longrope, self.logits("--attn", "longrope:table=short", model="longrope.gguf"))
        self.assertEqual(plain, self.logits("--attn", "full", "--rope-scaling", "none", model="longrope.gguf"))

    def test_windows_follow(self):
        text = "a b c d e f " * 200
        run_it = ["run", "-m", MODELS / "plain.gguf", "--no-chat", "-p", text, "-n", 1, "--attn"]
        for options, warns in ((["full"], True), (["yarn:factor=2"], True), (["yarn:factor=8"], False),
                               (["full", "--rope-scale", 8], False)):
            result = run(*run_it, *options)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(b"warning" in result.stderr, warns, result.stderr)
        explained = run(*run_it, "yarn:factor=2+auto").stderr
        self.assertIn(b"YaRN with factor 2 from 512 tokens", explained)
        self.assertIn(b"up to token 1024", explained)


class FitEsa(unittest.TestCase):
    def test_a_model_is_refused_until_the_command_it_names_has_run(self):
        env = {"XDG_CACHE_HOME": str(SCRATCH / "esa-cache")}
        ask = ["run", "-m", MODELS / "plain.gguf", "--no-chat", "-p", "a b c d e f " * 200, "-n", 3, "--attn", "esa"]
        refused = run(*ask, env=env)
        self.assertEqual(refused.returncode, 2)
        self.assertIn(b"longheads fit-esa -m " + str(MODELS / "plain.gguf").encode(), refused.stderr)
        fitted = run("fit-esa", "-m", MODELS / "plain.gguf", env=env)
        self.assertEqual(fitted.returncode, 0, fitted.stderr)
        self.assertIn(str(SCRATCH / "esa-cache").encode(), fitted.stdout)
        answered = run(*ask, env=env)
        self.assertEqual(answered.returncode, 0, answered.stderr)
        for flag in ("--kv-ram", "--packed-weights", "--rope-scale"):  # what would have no effect
            useless = run("fit-esa", "-m", MODELS / "plain.gguf", flag, 1, env=env)
            self.assertEqual(useless.returncode, 2)
            self.assertIn(flag.encode(), useless.stderr)
        unread = run("fit-esa", "-m", MODELS / "plain.gguf", "-f", SCRATCH / "none.txt", env=env)
        self.assertEqual(unread.returncode, 2)
        self.assertIn(b"none.txt", unread.stderr)


class Tokens(unittest.TestCase):
    def test_round_trip(self):
        text = "Grüße, 123 世界 🙂\n  x"
        ids = run("tokenize", "-m", MODELS / "plain.gguf", "-p", text)
        self.assertEqual(ids.returncode, 0, ids.stderr)
        as_json = run("tokenize", "-m", MODELS / "plain.gguf", "-p", text, "--json").stdout
        self.assertEqual(json.loads(as_json), [int(line) for line in ids.stdout.split()])
        for form in (ids.stdout, as_json):
            back = run("detokenize", "-m", MODELS / "plain.gguf", "-", stdin=form)
            self.assertEqual(back.stdout.decode(), text)

    def test_special(self):
        plain = run("tokenize", "-m", MODELS / "plain.gguf", "-p", "<|im_end|>").stdout.split()
        special = run("tokenize", "-m", MODELS / "plain.gguf", "-p", "<|im_end|>", "--special").stdout.split()
        self.assertGreater(len(plain), len(special))

    def test_what_is_no_list_of_ids(self):
        for ids, words in (("[1," + "[" * 300000 + "]" * 300000 + "]", b"entry 1 is array"),
                           ('[{"a": 1}]', b"entry 0 is object"), ("[1.5]", b"entry 0 is number"),
                           ("[18446744073709551615]", b"9223372036854775807 is not a token id"),
                           ("1 2 x", b"'x' is not a token id")):
            result = run("detokenize", "-m", MODELS / "plain.gguf", "-", stdin=ids.encode())
            self.assertEqual((result.returncode, result.stdout), (2, b""), result.stderr[:200])
            self.assertIn(words, result.stderr)
            self.assertLess(len(result.stderr), 200)

    def test_bytes_that_are_not_utf8_are_noted_once(self):
        result = run("tokenize", "-m", MODELS / "plain.gguf", "-", stdin=b"a\xff\xffb")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr.count(b"note"), 1)
        back = run("detokenize", "-m", MODELS / "plain.gguf", "-", stdin=result.stdout)
        self.assertEqual(back.stdout.decode(), "a\ufffd\ufffdb")


def holds_more_than(folder, size):
    """Whether one of its files does; they come and go."""
    for file in folder.iterdir():
        try:
            if file.stat().st_size > size:
                return True
        except FileNotFoundError:
            pass
    return False


class Logits(unittest.TestCase):
    def test_prefill_and_decode_agree(self):
        ids = SCRATCH / "ids.npy"
        write_ids(ids, [5, 17, 200, 33, 44, 5, 100, 7])
        rows = []
        for prefill in (8, 3, 0):
            out = SCRATCH / f"logits{prefill}.npy"
            result = run("logits", "-m", MODELS / "plain.gguf", "--tokens", ids, "--out", out, "--prefill", prefill,
                         "--compute", "f32")
            self.assertEqual(result.returncode, 0, result.stderr)
            rows.append(read_floats(out))
        self.assertEqual(len(rows[0]), 8 * 272)
        for other in rows[1:]:
            self.assertLess(max(abs(a - b) for a, b in zip(rows[0], other)), 3e-5)


    def test_an_older_file_stays_until_the_new_one_is_whole(self):
        folder = SCRATCH / "logits"
        folder.mkdir()
        out = folder / "old.npy"
        ids = SCRATCH / "many.npy"
        write_ids(ids, [1, 2, 3, 4] * 500)
        command = [PROGRAM, "logits", "-m", MODELS / "plain.gguf", "--tokens", ids, "--out", out, "--attn", "full"]
        command = [str(argument) for argument in command]
        out.write_text("old")
        # A disk that fills up.
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        full = subprocess.run(command, capture_output=True, timeout=120, preexec_fn=limit)
        self.assertEqual(full.returncode, 2, full.stderr)
        self.assertIn(b"old.npy", full.stderr)
        self.assertEqual([file.name for file in folder.iterdir()], ["old.npy"])
        self.assertEqual(out.read_text(), "old")
        # Ctrl-C, once it writes; a machine that is done before gets more to do.
        for repeats in (500, 2000, 8000):
            write_ids(ids, [1, 2, 3, 4] * repeats)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            while process.poll() is None and not holds_more_than(folder, 1 << 16):
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            error = process.communicate(timeout=60)[1]
            if process.returncode != 0:
                break
            out.write_text("old")
        self.assertEqual(process.returncode, 130, error)
        self.assertEqual([file.name for file in folder.iterdir()], ["old.npy"])
        self.assertEqual(out.read_text(), "old")

    def test_what_it_is_made_from_is_not_written_over(self):
        ids = SCRATCH / "precious.npy"
        write_ids(ids, [1, 2, 3])
        model = SCRATCH / "precious.gguf"
        model.write_bytes((MODELS / "plain.gguf").read_bytes())
        link = SCRATCH / "link.npy"
        link.symlink_to(ids)
        os.link(model, SCRATCH / "hard.npy")
        before = ids.read_bytes(), model.read_bytes()
        for out in (ids, model, link, SCRATCH / "." / "precious.npy", SCRATCH / "hard.npy"):
            result = run("logits", "-m", model, "--tokens", ids, "--out", out)
            self.assertEqual(result.returncode, 2, (out, result.stderr))
            self.assertIn(b"itself", result.stderr)
        self.assertEqual((ids.read_bytes(), model.read_bytes()), before)


class Perplexity(unittest.TestCase):
    COMMAND = ["eval", "ppl", "-m", "", "--attn", "full;longheads,chunk=16,window=64,begin=64", "--lengths", "200,100",
               "--samples", 2, "--score", 20, "--compute", "f32"]

    def setUp(self):
        self.text = SCRATCH / "prose.txt"
        self.text.write_text(" ".join(f"{7919 * i % 1009} of" for i in range(400)))
        self.out = SCRATCH / self.id()
        self.command = [*self.COMMAND, "--text", self.text, "--out", self.out]
        self.command[3] = MODELS / "plain.gguf"

    def records(self):
        return [json.loads(line) for line in (self.out / "ppl.jsonl").read_text().splitlines()]

    def test_a_table_a_line_for_each_case_and_a_summary(self):
        result = run(*self.command)
        self.assertEqual(result.returncode, 0, result.stderr)
        table = result.stdout.decode().splitlines()
        self.assertIn("2 samples of prose.txt", table[0])
        self.assertEqual(table[1].split(), ["attn", "100", "200"])
        self.assertRegex(table[2], r"^full +[\d.]+ \([\d.]+-[\d.]+\) +[\d.]+ \([\d.]+-[\d.]+\)$")
        self.assertEqual(len(table), 4)
        records = self.records()
        self.assertEqual([(r["attn"][:4], r["sample"], r["length"]) for r in records],
                         [(attn, sample, n) for attn in ("full", "long") for sample in (0, 1) for n in (100, 200)])
        for record in records:
            self.assertEqual(record["tokens"], 20)
            self.assertEqual(record["calls"], [80] if record["length"] == 100 else [80, 180])
            self.assertAlmostEqual(record["ppl"], math.exp(record["nll_sum"] / 20))
            self.assertEqual(record["text_bytes"], self.text.stat().st_size)
        with open(self.out / "ppl.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 4)
        both = [r["nll_sum"] for r in records if r["attn"] == "full" and r["length"] == 200]
        self.assertAlmostEqual(float(rows[1]["ppl"]), math.exp(sum(both) / 40), places=3)
        # Once more: nothing to do, and the same table.
        again = run(*self.command)
        self.assertEqual((again.returncode, again.stdout), (0, result.stdout))
        self.assertEqual(again.stderr.count(b"done before"), 8)
        self.assertEqual(self.records(), records)

    def test_ctrl_c_keeps_what_is_done(self):
        self.text.write_text(" ".join(f"{7919 * i % 100003} of" for i in range(40000)))
        slow = [*self.command, "--backend", "ref"]
        slow[slow.index("--lengths") + 1] = "100,60000"  # the second takes minutes
        slow[slow.index("--samples") + 1] = 1
        process = subprocess.Popen([PROGRAM, *map(str, slow)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        journal = self.out / "ppl.jsonl"
        while process.poll() is None and not (journal.exists() and journal.stat().st_size > 0):
            time.sleep(0.01)
        self.assertIsNone(process.poll(), "it ended before it could be interrupted")
        self.assertTrue(handles_ctrl_c(process.pid))
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        self.assertLess(time.monotonic() - start, 10)
        self.assertIn(b"the same command goes on", error)
        self.assertIn(b"full", output)
        self.assertEqual(len(self.records()), 1)
        self.assertTrue((self.out / "ppl.csv").exists())

    def test_bad_input_is_one_sentence(self):
        for changes, words in ((["--lengths", "20"], ["--lengths has 20", "21"]),
                               (["--lengths", "many"], ["--lengths"]),
                               (["--score", 1], ["--score is 1"]),
                               (["--samples", 0], ["--samples is 0"]),
                               (["--attn", "fill"], ["did you mean 'full'"]),
                               (["--lengths", "100k"], ["prose.txt has", "tokens", "need 204800"])):
            command = list(self.command)
            command[command.index(changes[0]) + 1] = changes[1]
            result = run(*command)
            self.assertEqual((result.returncode, result.stdout), (2, b""), result.stderr)
            sentences = [line for line in result.stderr.decode().splitlines() if line.startswith("longheads: ")]
            self.assertEqual(len(sentences), 1)
            for word in words:
                self.assertIn(word, sentences[0])
            self.assertFalse(self.out.exists())
        self.assertIn(b"--shard is '3/2'", run(*self.command, "--shard", "3/2").stderr)
        without_text = run(*self.COMMAND[:3], MODELS / "plain.gguf")
        self.assertEqual(without_text.returncode, 2)
        self.assertIn(b"--text", without_text.stderr)
        self.text.write_bytes(b"caf\xe9" * 1000)
        not_utf8 = run(*self.command)
        self.assertEqual(not_utf8.returncode, 2)
        self.assertIn(b"iconv", not_utf8.stderr)


class Tasks(unittest.TestCase):
    def setUp(self):
        self.text = SCRATCH / "haystack.txt"
        self.text.write_text(" ".join(f"Line {7919 * i % 1009} of {i}." for i in range(400)))
        self.out = SCRATCH / self.id()
        self.command = ["eval", "needle", "-m", MODELS / "plain.gguf", "--compute", "f32", "--attn",
                        "full;longheads,chunk=16,window=64,begin=64", "--lengths", "500,700", "--depths", 3, "--predict",
                        4, "--haystack", self.text, "--out", self.out]

    def records(self, name="needle"):
        records = [json.loads(line) for line in (self.out / f"{name}.jsonl").read_text().splitlines()]
        for record in records:  # what differs from run to run
            for key in ("seconds", "time", "shared"):
                record.pop(key, None)
        return records

    def test_a_table_a_line_for_each_sample_a_summary_and_the_official_files(self):
        result = run(*self.command)
        self.assertEqual(result.returncode, 0, result.stderr)
        table = result.stdout.decode().splitlines()
        self.assertEqual(table[1].split(), ["attn", "500", "700"])
        self.assertIn(" of 3", table[2])
        self.assertEqual(len(self.records()), 12)
        with open(self.out / "needle.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([(row["length"], row["depth"]) for row in rows][:4],
                         [("500", "0.0"), ("500", "50.0"), ("500", "100.0"), ("700", "0.0")])
        self.assertEqual(len(list((self.out / "needle-results").rglob("*_results.json"))), 12)
        again = run(*self.command)
        self.assertEqual((again.returncode, again.stdout), (0, result.stdout))
        self.assertEqual(again.stderr.count(b"done before"), 12)

    def test_a_kill_at_any_moment_loses_no_whole_line(self):
        self.assertEqual(run(*self.command).returncode, 0)
        whole = self.records()
        journal = self.out / "needle.jsonl"
        journal.unlink()
        lines = 0
        while lines < len(whole):
            process = subprocess.Popen([PROGRAM, *map(str, self.command)], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < lines + 3):
                time.sleep(0.002)
            process.kill()
            process.wait()
            lines = journal.read_bytes().count(b"\n")
            with open(journal, "ab") as file:  # as a kill amid a line leaves it
                file.write(b'{"task":"nee')
        self.assertEqual(run(*self.command).returncode, 0)
        self.assertEqual(self.records(), whole)

    def test_kills_at_random_moments_change_nothing(self):
        start = time.monotonic()
        self.assertEqual(run(*self.command).returncode, 0)
        seconds = time.monotonic() - start
        whole = self.records()
        a_line = (self.out / "needle.jsonl").read_bytes().splitlines()[-1]
        shutil.rmtree(self.out)
        journal = self.out / "needle.jsonl"
        chance = random.Random(seed := random.randrange(1 << 30))
        for _ in range(8):
            process = subprocess.Popen([PROGRAM, *map(str, self.command)], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, seconds / 2))
            process.kill()
            process.wait()
            if journal.exists() and chance.random() < 0.5 and journal.read_bytes()[-1:] in (b"", b"\n"):
                with open(journal, "ab") as file:  # as a kill amid a line leaves it
                    file.write(a_line[:chance.randrange(1, len(a_line))])
        last = run(*self.command)
        self.assertEqual(last.returncode, 0, (seed, last.stderr))
        self.assertEqual(self.records(), whole, seed)

    def test_nothing_but_failures_is_no_success(self):
        file = SCRATCH / "stars.jsonl"
        file.write_text('{"question": "half a li\n{}\n')
        command = ["eval", "counting-stars", "-m", MODELS / "plain.gguf", "--compute", "f32", "--attn", "full", "--data"]
        result = run(*command, file, "--out", self.out)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(b"none of 2 samples could be run", result.stderr)
        self.assertEqual([("line 1" in r["failed"], "line 2" in r["failed"]) for r in self.records("counting-stars")],
                         [(True, False), (False, True)])
        with open(file, "a") as more:
            more.write('{"question": "Which?", "context_size": 4, "reference_counting_results": [3]}\n')
        result = run(*command, file)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"2 of 3 samples failed", result.stderr)

    def test_shards_are_the_whole(self):
        self.assertEqual(run(*self.command).returncode, 0)
        whole = self.records()
        parts = []
        for shard in ("1/2", "2/2"):
            self.assertEqual(run(*self.command, "--shard", shard).returncode, 0)
            parts += self.records(f"needle-{shard[0]}of2")
        order = lambda record: (record["attn"], record["id"])
        self.assertEqual(sorted(parts, key=order), sorted(whole, key=order))

    def test_bad_input_is_one_sentence(self):
        for changes, words in ((["--lengths", "20"], "--lengths has 20"), (["--depths", "0"], "--depths"),
                               (["--haystack", "/no/such"], "/no/such"), (["--attn", "fill"], "did you mean 'full'")):
            command = list(self.command)
            command[command.index(changes[0]) + 1] = changes[1]
            result = run(*command)
            self.assertEqual((result.returncode, result.stdout), (2, b""), result.stderr)
            self.assertIn(words, result.stderr.decode().splitlines()[-1])
        shard = run(*self.command, "--shard", "3/2")
        self.assertEqual(shard.returncode, 2)
        self.assertIn(b"--shard is '3/2'", shard.stderr)


class Suite(unittest.TestCase):
    def setUp(self):
        self.out = SCRATCH / self.id()
        self.file = SCRATCH / (self.id() + ".json")
        text = SCRATCH / "haystack.txt"
        text.write_text(" ".join(f"Line {7919 * i % 1009} of {i}." for i in range(400)))
        self.suite = {"models": [{"file": str(MODELS / "plain.gguf"), "compute": "f32"}], "methods": ["full"],
                      "lengths": [600], "tasks": [{"task": "passkey", "depths": 2, "lengths": 1500, "predict": 2},
                                                  {"task": "needle", "depths": 2, "predict": 2, "haystack": str(text)},
                                                  {"task": "kld", "lengths": 64, "samples": 2, "score": 4,
                                                   "methods": ["streaming-llm,start=2,recent=20"],
                                                   "haystack": str(text)},
                                                  {"task": "ppl", "lengths": [64, 100], "samples": 2, "score": 8,
                                                   "text": str(text)}]}

    LINES = {"passkey": 2, "needle": 2, "kld": 2, "ppl": 4}

    def run_suite(self, *more):
        self.file.write_text(json.dumps(self.suite))
        return run("eval", "suite", self.file, "--out", self.out, *more)

    def records(self, part=""):
        """By task, without what differs from run to run."""
        return {name: [{key: value for key, value in json.loads(line).items() if key not in ("seconds", "time", "shared")}
                       for line in (self.out / f"{name}{part}.jsonl").read_bytes().splitlines()] for name in self.LINES}

    def test_steps_run_in_turn_and_once(self):
        result = self.run_suite()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual({name: len(records) for name, records in self.records().items()}, self.LINES)
        again = self.run_suite()
        self.assertEqual((again.returncode, again.stdout), (0, result.stdout))
        self.assertEqual(again.stderr.count(b"done before"), sum(self.LINES.values()))

    def test_shards_are_the_whole(self):
        self.assertEqual(self.run_suite().returncode, 0)
        whole = self.records()
        shutil.rmtree(self.out)
        for i in (1, 2):
            result = self.run_suite("--shard", f"{i}/2")
            self.assertEqual(result.returncode, 0, result.stderr)
        first, second = self.records("-1of2"), self.records("-2of2")
        for name, lines in self.LINES.items():
            self.assertEqual((len(first[name]), len(second[name])), (lines / 2, lines / 2), name)
            self.assertEqual(sorted(first[name] + second[name], key=str), sorted(whole[name], key=str))

    def test_a_method_that_does_not_go_with_the_model_fails_alone(self):
        self.suite["methods"] = ["landmark", "full"]
        del self.suite["tasks"][2]["methods"]
        result = self.run_suite()
        self.assertEqual(result.returncode, 0, result.stderr)
        for name, records in self.records().items():
            self.assertEqual([(record["attn"], "<landmark>" in record.get("failed", "")) for record in records],
                             [("landmark", True)] * self.LINES[name] + [("full", False)] * self.LINES[name])
        self.assertEqual(result.stderr.count(b"2 of 4 samples failed"), 3)
        self.assertIn(b"4 of 8 samples failed", result.stderr)

    def test_a_step_that_cannot_run_does_not_keep_the_others(self):
        self.suite["tasks"][1]["methods"] = ["longheads,chunk=100000"]
        result = self.run_suite()
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"1 of 4 steps could not run", result.stderr)
        self.assertTrue((self.out / "kld.jsonl").exists())

    def test_time_left_is_said_of_what_is_known_alone(self):
        stars = SCRATCH / (self.id() + ".jsonl")  # whose lines do not say how long they are
        stars.write_text('{"question": "Which?", "reference_counting_results": [3]}\n')
        self.suite["tasks"] = [self.suite["tasks"][0], self.suite["tasks"][3],
                               {"task": "counting-stars", "data": str(stars)}]
        result = self.run_suite()
        self.assertEqual(result.returncode, 0, result.stderr)
        steps = [line for line in result.stderr.decode().splitlines() if line.startswith("step ")]
        self.assertEqual(len(steps), 3)
        self.assertNotIn("at this pace", steps[0])
        self.assertIn("at this pace", steps[1])
        self.assertIn("(1 steps of unknown length not counted)", steps[1])
        self.assertNotIn("at this pace", steps[2])

    def test_an_ablation_and_models_whose_keys_go_to_disk(self):
        model = {"file": str(MODELS / "plain.gguf"), "compute": "f32"}
        self.suite["models"] = [model, model | {"kv-ram": "4m", "kv-disk": str(SCRATCH), "kv-blocks": 8}]
        self.suite["tasks"] = [
            {"task": "efficiency", "lengths": [600], "decode": 2},
            {"task": "ablation", "chunk": 8, "window": 96,
             "of": {"task": "passkey-papers", "paper": "lm-infinite", "repeats": 1}}]
        result = self.run_suite("--threads", "2")  # each wants pages in memory
        self.assertEqual(result.returncode, 0, result.stderr)
        records = [json.loads(line) for line in (self.out / "efficiency.jsonl").read_text().splitlines()]
        asked = [[record["options"].get(name) for name in ("kv_ram", "kv_disk", "kv_blocks")] for record in records]
        self.assertEqual(asked, [[0, None, None]] * 3 + [[4 << 20, str(SCRATCH), 8]] * 3)
        self.assertEqual(len((self.out / "passkey-papers.jsonl").read_text().splitlines()), 12)
        self.assertIn("choose=last-k", result.stdout.decode())
        self.assertIn(b"--kv-ram 4m", result.stderr)

    def test_a_kill_in_any_step_changes_nothing(self):
        self.assertEqual(self.run_suite().returncode, 0)
        whole = self.records()
        shutil.rmtree(self.out)
        lines = lambda: sum(path.read_bytes().count(b"\n") for path in self.out.glob("*.jsonl"))
        had = 0
        while had < sum(self.LINES.values()):
            process = subprocess.Popen([PROGRAM, "eval", "suite", self.file, "--out", self.out], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            while process.poll() is None and lines() <= had:
                time.sleep(0.002)
            process.kill()
            process.wait()
            had = lines()
            for path in self.out.glob("*.jsonl"):
                with open(path, "ab") as file:  # as a kill amid a line leaves it
                    file.write(b'{"task":"')
        self.assertEqual(self.run_suite().returncode, 0)
        self.assertEqual(self.records(), whole)

    def test_memory_is_each_samples_own(self):
        # An engine keeps pages and buffers for what comes next; they would count for the shorter text.
        self.suite["tasks"] = [{"task": "efficiency", "lengths": [16000, 600], "repeats": 1, "decode": 2}]
        self.file.write_text(json.dumps(self.suite))
        result = run("eval", "suite", self.file, "--out", self.out,
                     env={"ASAN_OPTIONS": "quarantine_size_mb=0"})  # the address sanitizer keeps what was freed
        self.assertEqual(result.returncode, 0, result.stderr)
        longer, shorter = (json.loads(line)["values"] for line in (self.out / "efficiency.jsonl").read_text().splitlines())
        self.assertGreater(longer["kv_gib"], 10 * shorter["kv_gib"])
        self.assertLess(shorter["peak_gib"], longer["peak_gib"] - longer["kv_gib"] / 2)

    def test_what_is_wrong_is_named_before_anything_runs(self):
        for change, words in ((lambda s: s["tasks"][3].update(text="/no/such"), "tasks[3] (ppl): /no/such"),
                              (lambda s: s["tasks"][1].update(depth=3), "'tasks[1].depth'"),
                              (lambda s: s["tasks"][2].update(methods=["streaming-lm"]), "'tasks[2].methods[0]'"),
                              (lambda s: s["models"][0].update({"kv-ram": "much"}), "--kv-ram"),
                              (lambda s: s["models"][0].update({"kv-disk": "/tmp"}), "models[0]: --kv-disk has no effect without --kv-ram"),
                              (lambda s: s["models"][0].update({"kv-ram": "1g", "kv-blocks": 33}), "models[0]: --kv-blocks is 33"),
                              (lambda s: s["tasks"][1].update(depths="many"), "tasks[1] (needle): --depths"),
                              (lambda s: s.update(taskz=[]), "'taskz'")):
            suite = json.loads(json.dumps(self.suite))
            change(self.suite)
            result = self.run_suite()
            self.suite = suite
            self.assertEqual((result.returncode, result.stdout), (2, b""), result.stderr)
            self.assertIn(words, result.stderr.decode())
            self.assertFalse(self.out.exists())


class Ablation(unittest.TestCase):
    def test_a_row_for_each_variant(self):
        result = run("eval", "ablation", "-m", MODELS / "plain.gguf", "--compute", "f32", "--chunk", 8, "--window", 96,
                     "--task", "passkey-papers", "--set", "paper=lm-infinite", "--set", "lengths=600", "--set",
                     "repeats=2")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = result.stdout.decode().splitlines()
        self.assertEqual(len(rows), 13)
        self.assertNotIn(b"no text is longer", result.stderr)
        self.assertTrue(rows[1].startswith("base "))
        self.assertIn("choose=last-k", rows[4])
        short = run("eval", "ablation", "-m", SCRATCH / "missing.gguf", "--set", "lengths=1k")
        self.assertIn(b"no text is longer than the base's window of 4096 tokens", short.stderr)
        wrong = run("eval", "ablation", "--chunk", 100)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn(b"--window 4096 and --chunk 100", wrong.stderr)


class Help(unittest.TestCase):
    def test_every_command_has_help_with_an_example(self):
        self.assertIn(b"run -f", run("--help").stdout)
        for command in (["run"], ["tokenize"], ["detokenize"], ["logits"], ["info"], ["methods"], ["eval", "passkey"],
                        ["eval", "ppl"], ["eval", "suite"], ["eval", "ablation"], ["eval", "needle"],
                        ["eval", "ppl-windows"], ["eval", "kld"], ["eval", "selection"], ["eval", "efficiency"],
                        ["eval", "passkey-papers"], ["eval", "esa-recall"], ["eval", "needlebench"],
                        ["eval", "counting-stars"], ["eval", "ruler"], ["eval", "longbench"], ["eval", "infinitebench"],
                        ["ingest"], ["ask"], ["context"], ["context", "info"], ["context", "verify"],
                        ["context", "append"], ["context", "export"], ["report"], ["view"], ["fit-esa"],
                        ["bench", "kernels"], ["bench", "limits"], ["bench", "sweep"]):
            result = run(*command, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn(b"Example", result.stdout, command)
            refuses_folders = command in (["ingest"], ["context", "append"])
            if b"--kv-ram" in result.stdout:
                self.assertEqual(b"--kv-disk" not in result.stdout, refuses_folders, command)
        self.assertRegex(run("--version").stdout, rb"longheads \d+\.\d+\.\d+")

    def test_a_text_from_standard_input_has_no_source(self):
        for given, source in (("-", ""), (SCRATCH / "named.txt", "named.txt")):
            (SCRATCH / "named.txt").write_text("once upon a time")
            out = SCRATCH / f"of_{source}.lhctx"
            made = run("ingest", "-m", MODELS / "plain.gguf", "--no-chat", "-f", given, "-o", out, stdin=b"once upon a time")
            self.assertEqual(made.returncode, 0, made.stderr)
            self.assertEqual(json.loads(run("context", "info", out, "--json").stdout)["source"], source)

    def test_methods_and_info(self):
        self.assertIn(b"longheads", run("methods").stdout)
        options = run("methods", "longheads").stdout
        for option in (b"chunk", b"window", b"begin", b"reps", b"select", b"compat"):
            self.assertIn(option, options)
        self.assertIn(b"beta_fast=number", run("methods", "yarn").stdout)
        pages = {page.stem: page.read_text() for page in (ROOT / "docs" / "methods").glob("*.md")}
        names = [line.split()[0] for line in run("methods").stdout.decode().splitlines()
                 if line.startswith("  ") and "METHOD" not in line]
        self.assertGreaterEqual(len(names), 17)
        for name in names:
            text, table = run("methods", name), run("methods", name, "--markdown").stdout.decode()
            self.assertEqual(text.returncode, 0, name)
            self.assertTrue(table in pages.get("longheads" if name == "auto" else name, pages["frequencies"]), name)
            for row in table.splitlines()[2:]:  # what it says in words is what the table has
                option, meaning = row.split("|")[1].strip(" `"), row.split("|")[4].strip()
                words = " ".join(text.stdout.decode().split())
                self.assertIn(f" {option}=", words, name)
                self.assertIn(meaning.split("; ")[0][:40], words, name)
        self.assertTrue(run("methods", "longheads", "--markdown").stdout.startswith(b"| option |"))
        info = run("info", MODELS / "plain.gguf", "-c", "4k").stdout
        for word in (b"512 tokens", b"4096 tokens", b"F32", b"base 10000"):
            self.assertIn(word, info)
        info = run("info", MODELS / "yarn.gguf").stdout
        for word in (b"2048 tokens", b"YaRN with factor 4 from 512 tokens"):
            self.assertIn(word, info)
        longest = run("info", MODELS / "plain.gguf", "-c", "16384m")
        self.assertEqual(longest.returncode, 0, longest.stderr)
        self.assertIn(b"must be 1 to 17179869184", run("info", MODELS / "plain.gguf", "-c", "16385m").stderr)
        self.assertIn(b"LongRoPE", run("info", MODELS / "longrope.gguf").stdout)
        self.assertIn(b"base 20000, positions / 2", run("info", MODELS / "plain.gguf", "--rope-freq-base", 20000,
                                                        "--rope-scale", 2).stdout)


def bytes_in(pipe):
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0]


class Interrupt(unittest.TestCase):
    def interrupted(self, *arguments, after, command=("run", "--no-chat"), reads=True):
        """Gives what a command printed (stdout, stderr) when it was stopped `after` seconds into its work."""
        process = subprocess.Popen([PROGRAM, *command, "-m", str(MODELS / "plain.gguf"), *map(str, arguments)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=4096 if not reads else -1)
        while process.poll() is None and not handles_ctrl_c(process.pid):
            time.sleep(0.01)
        if not reads:  # the pipe is full once it holds no more than a moment before
            held = -1
            while process.poll() is None and (held != (held := bytes_in(process.stdout)) or held == 0):
                time.sleep(0.5)
        time.sleep(after)
        self.assertIsNone(process.poll(), "it ended before it could be interrupted")
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        if not reads:
            process.wait(timeout=60)
        output, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        # A second on a free machine; others may be using this one.
        self.assertLess(time.monotonic() - start, 10)
        return output, error

    def test_while_a_long_text_becomes_tokens(self):
        # Half a million different words, over and over: many seconds before there is a token to read.
        text = SCRATCH / "words.txt"
        words = " ".join(f"w{7919 * i % 1000003}" for i in range(500000))
        with open(text, "w") as file:
            for _ in range(30):
                file.write(words)
        output, error = self.interrupted("-f", text, after=0.5)
        self.assertEqual(output, b"")
        self.assertNotIn(b"tokens", error, "it was past the tokens already")

    def test_while_an_experiment_makes_its_prompts(self):
        self.interrupted("--lengths", "8m", "--form", "plain", after=0.5, command=("eval", "passkey"))

    def test_while_reading(self):
        text = SCRATCH / "long.txt"
        text.write_text("word " * 40000)
        self.interrupted("-f", text, "--backend", "ref", "--attn", "full", after=2)

    def test_while_answering_prints_what_there_is(self):
        output, _ = self.interrupted("-p", "Hello", "-n", 10000000, after=2)
        self.assertGreater(len(output), 0)

    def test_while_nobody_reads_the_answer(self):
        output, _ = self.interrupted("-p", "Hello", "-n", 10000000, after=0, reads=False)
        self.assertGreater(len(output), 0)


if __name__ == "__main__":
    main()
