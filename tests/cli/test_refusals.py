"""What the program says of bad input.

usage: test_refusals.py PROGRAM WRITE_TINY_MODELS [unittest arguments]
"""

import os
import pathlib
import shutil
import subprocess
import unittest

import test_program
from test_program import run, write_ids


class BadInput(unittest.TestCase):
    def refused(self, *arguments, says=(), **keywords):
        result = run(*arguments, **keywords)
        error = result.stderr.decode()
        self.assertEqual(result.returncode, 2, (arguments, error))
        self.assertEqual(result.stdout, b"")
        self.assertGreater(len(error.strip()), 15)
        for word in says:
            self.assertIn(word, error)
        return error

    def test_models(self):
        (test_program.SCRATCH / "empty.gguf").write_bytes(b"")
        (test_program.SCRATCH / "cut.gguf").write_bytes((test_program.MODELS / "plain.gguf").read_bytes()[:5000])
        (test_program.SCRATCH / "text.gguf").write_text("This is no model.\n" * 100)
        for name in ("missing.gguf", "empty.gguf", "cut.gguf", "text.gguf"):
            self.refused("run", "-m", test_program.SCRATCH / name, "-p", "x", says=[name])
            self.refused("info", test_program.SCRATCH / name, says=[name])
            self.refused("tokenize", "-m", test_program.SCRATCH / name, "-p", "x", says=[name])
        self.refused("run", "-m", test_program.SCRATCH, "-p", "x", says=["director"])
        self.refused("info", test_program.MODELS / "plain.gguf", "-m", test_program.MODELS / "plain.gguf", says=["--model", "MODEL"])
        # What a file says of itself does not steer the terminal.
        data = (test_program.MODELS / "plain.gguf").read_bytes()
        at = data.index(b"llama", data.index(b"general.architecture") + 20)
        (test_program.SCRATCH / "steers.gguf").write_bytes(data[:at] + b"\x1b[31m" + data[at + 5:])
        self.assertNotIn("\x1b", self.refused("info", test_program.SCRATCH / "steers.gguf", says=["\ufffd[31m"]))
        self.refused("run", "-p", "x", env={"XDG_CACHE_HOME": str(test_program.SCRATCH / "nowhere")}, says=["-m", "make"])

    def test_prompts(self):
        model = ["run", "-m", test_program.MODELS / "plain.gguf", "--no-chat"]
        self.refused(*model, says=["-p", "-f"])
        self.refused(*model, "-p", "", says=["empty"])
        self.refused(*model, "-p", " \n ", says=["empty"])
        self.refused(*model, "-", says=["empty"])
        self.refused(*model, "-p", "x", "-f", "y", says=["only one"])
        self.refused(*model, "-f", test_program.SCRATCH / "missing.txt", says=["missing.txt"])
        self.refused(*model, "-f", test_program.SCRATCH, says=["director"])
        self.refused(*model, "book.txt", says=["-f"])
        name = "a" * 250  # with .partial behind it too long for a file
        self.refused("ingest", "-m", test_program.MODELS / "plain.gguf", "-p", "x", "-o", test_program.SCRATCH / name,
                     says=["-o: cannot look up", name, "File name too long"])
        self.refused(*model, "-", stdin=b"caf\xe9 au lait", says=["0xE9", "offset 3", "iconv"])
        self.assertEqual(run(*model, "-", "--replace-invalid", "-n", 2, stdin=b"caf\xe9").returncode, 0)

    def test_templates(self):
        self.refused("run", "-m", test_program.MODELS / "strange-template.gguf", "-p", "x", says=["--no-chat", "a template nobody"])
        self.assertEqual(run("run", "-m", test_program.MODELS / "strange-template.gguf", "-p", "x", "--no-chat", "-n", 1).returncode, 0)
        self.refused("run", "-m", test_program.MODELS / "plain.gguf", "-p", "x", "--chat", says=["template"])

    def test_attention(self):
        model = ["run", "-m", test_program.MODELS / "plain.gguf", "--no-chat", "-p", "x", "--attn"]
        self.refused(*model, "longhead", says=["did you mean 'longheads'"])
        self.refused(*model, "longheads,chunk=100,window=256", says=["multiple", "try window=300"])
        self.refused(*model, "longheads,chunk=64,window=1024", says=["512 tokens of the model's window"])
        self.refused(*model, "longheads,chunk=32,window=256,begin=128", says=["begin", "window"])
        self.refused(*model, "longheads,chunk=32,window=64", says=["three"])
        self.refused(*model, "longheads,chnk=32", says=["did you mean 'chunk'"])
        self.refused(*model, "longheads,chunk=0")
        self.refused(*model, "longheads,chunk=99999999999999999999")
        self.refused(*model, "longheads,chunk", says=["option=value"])
        self.refused(*model, "", says=["method"])
        self.refused(*model, "yarm:factor=4", says=["did you mean 'yarn'"])
        self.refused(*model, "yarn:factr=4+full", says=["did you mean 'factor'"])
        self.refused(*model, "yarn:factor=0.5+full", says=["--attn yarn", "at least 1"])
        self.refused(*model, "longrope+full", says=["rope_factors_long.weight"])
        self.refused("methods", "longhead", says=["longheads"])
        self.refused("methods", "yarm", says=["yarn"])

    def test_rope(self):
        model = ["run", "-m", test_program.MODELS / "plain.gguf", "--no-chat", "-p", "x"]
        self.refused(*model, "--rope-scaling", "spiral", says=["none, linear or yarn"])
        self.refused(*model, "--rope-scaling", "yarn", says=["--rope-scale"])
        self.refused(*model, "--rope-scale", 0.5, says=["at least 1"])
        self.refused(*model, "--rope-scale", "much")
        self.refused(*model, "--rope-scale", 2, "--rope-freq-scale", 0.5, says=["only one"])
        self.refused(*model, "--yarn-beta-fast", 16, says=["--rope-scaling yarn"])
        self.refused(*model, "--rope-scaling", "yarn", "--rope-scale", 4, "--yarn-orig-ctx", "many", says=["many"])
        self.refused("run", "-m", test_program.MODELS / "yarn.gguf", "--no-chat", "-p", "x", "--attn", "yarn",
                     says=["--rope-scaling none"])

    def test_options(self):
        model = ["run", "-m", test_program.MODELS / "plain.gguf", "--no-chat", "-p", "x"]
        for option, value in (("--temp", -1), ("--temp", "nan"), ("--top-p", 0), ("--top-k", -1), ("--min-p", 1),
                              ("--repeat-penalty", 0), ("-n", 0), ("-n", 9223372036854775807), ("-n", "many"), ("-t", -1), ("-t", 100000),
                              ("--compute", "fp4"), ("--kv-type", "fp4"), ("--backend", "neon")):
            with self.subTest(option=option, value=value):
                self.refused(*model, option, value)
        for option, value in (("--kv-disk", test_program.SCRATCH), ("--kv-disk", "/var/tmp"), ("--kv-disk-max", "1g"), ("--kv-blocks", 8)):
            self.refused(*model, option, value, says=[f"{option} has no effect without --kv-ram"])
        self.refused("run", "-m", test_program.MODELS / "quantised.gguf", "--no-chat", "-p", "x", "--compute", "int8",
                     "--packed-weights", "on", says=["--packed-weights on has no effect where prompts are multiplied in int8"])
        self.refused(*model, "--seed", -3, says=["--seed is -3, but must be 0 or more; 'longheads run --help' says more"])
        for words, says in ((["-n", "5k"], "--predict is '5k', but must be a number"), (["--temp"], "--temp needs a value"),
                            (["-t", "1.5"], "--threads is '1.5', but must be a whole number"), (["--json=maybe"], "--json takes no value"),
                            (["-t", "99999999999"], "--threads is '99999999999', which is too large"),
                            (["-t", "1", "-t", "2"], "--threads has more values than it takes")):
            self.refused(*model, *words, says=["longheads: " + says])
        for option in ("--kv-ram", "--kv-disk-max"):  # 0 would be no limit
            self.refused(*model, option, "0.5", says=[f"{option}: '0.5' is less than a byte"])
        self.refused(*model, "-t", -1, says=["--threads is -1, but must be between 1 and 1024, or 0"])
        for question in ("", " \n"):
            self.refused(*model, "-q", question, says=["the question is empty"])
        self.refused("info", test_program.MODELS / "plain.gguf", "-c", "abc", says=["-c: 'abc' is not a count"])
        data = (test_program.MODELS / "plain.gguf").read_bytes()
        vocabulary = test_program.SCRATCH / "vocabulary.gguf"
        vocabulary.write_bytes(data[:8] + bytes(8) + data[16:])  # no tensors
        self.assertIn(b"a vocabulary alone", run("info", vocabulary).stdout)
        self.refused("info", vocabulary, "-c", 100, says=["holds a vocabulary alone", "-c"])
        self.refused("methods", "--markdown", says=["--markdown is of one method's options"])
        self.refused("view", "some.trace", "-o", test_program.SCRATCH / "page.html", "--token", 3, says=["--token is of the figure"])
        for option, value in (("--compute", "f32"), ("--kv-type", "q8"), ("--backend", "ref"), ("--threads", 2), ("--model", "m.gguf")):
            self.refused("context", "export", "book.lhctx", "--tokens", option, value, says=["--tokens", option])
        self.refused(says=["which command of 'longheads'?", "ingest"])
        self.refused("context", says=["which command of 'longheads context'?", "info, verify, append, export"])
        self.refused("runn", says=["no command 'longheads runn'", "did you mean 'run'"])
        self.refused("rnu", "--help", says=["no command"])
        self.refused("eval", "passky", says=["no command 'longheads eval passky'", "did you mean 'passkey'"])
        self.refused("chatter", says=["no command", "longheads --help"])
        self.refused("run", "--nonsense", says=["'longheads run' has no option --nonsense", "longheads run --help"])
        self.refused(*model, "--kvram", "1g", says=["no option --kvram", "did you mean '--kv-ram'"])
        self.refused("ask", "book.lhctx", "-q", "who?", "--attn", "full", says=["'longheads ask' has no option --attn"])
        self.refused("run", "-p", "--attn", "-Z", says=["no option -Z"])
        self.refused("context", "info", "a", "missing", says=["there is no place for 'missing'"])

    def test_what_has_no_effect_is_noted(self):
        said = run("run", "-m", test_program.MODELS / "plain.gguf", "--no-chat", "-p", "x", "-n", 1, "--top-p", 0.5, "--seed", 7)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(b"note: --top-p, --seed without effect", said.stderr)

    def test_ids(self):
        for text in (b"1 2 x", b"[1, 2", b"[1.5]", b"99999", b"-1", b"1e3"):
            with self.subTest(text=text):
                self.refused("detokenize", "-m", test_program.MODELS / "plain.gguf", "-", stdin=text)
        ids = test_program.SCRATCH / "bad.npy"
        out = test_program.SCRATCH / "out.npy"
        logits = ["logits", "-m", test_program.MODELS / "plain.gguf", "--tokens", ids, "--out"]
        self.refused(*logits, out, says=["bad.npy"])
        ids.write_bytes(b"\x93NUMPY nothing")
        self.refused(*logits, out, says=["bad.npy"])
        write_ids(ids, [1, 99999])
        self.refused(*logits, out, says=["99999"])
        write_ids(ids, [1, 2])
        self.refused(*logits, test_program.SCRATCH / "no" / "such" / "folder.npy", says=["folder.npy"])
        self.refused(*logits, out, "--prefill", 3, says=["--prefill"])

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_full_disk(self):
        ids = test_program.SCRATCH / "some.npy"
        write_ids(ids, [1, 2, 3] * 40)
        self.refused("logits", "-m", test_program.MODELS / "plain.gguf", "--tokens", ids, "--out", "/dev/full", says=["/dev/full"])
        for command in (["run", "-m", test_program.MODELS / "plain.gguf", "--no-chat", "-p", "x", "-n", "3"],
                        ["tokenize", "-m", test_program.MODELS / "plain.gguf", "-p", "x"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([test_program.PROGRAM, *map(str, command)], stdout=full, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(result.returncode, 2, result.stderr)


    def test_threads_that_the_system_does_not_start(self):
        # Too little address space for the stacks of a thousand threads.
        if b"__asan_init" in pathlib.Path(test_program.PROGRAM).read_bytes():
            self.skipTest("the address sanitizer itself needs more address space than the limit leaves")
        limited = ["sh", "-c", 'ulimit -v 3000000; exec "$0" "$@"', test_program.PROGRAM, "run", "-m", str(test_program.MODELS / "plain.gguf"),
                   "--no-chat", "-p", "x", "-t", "1000"]
        result = subprocess.run(limited, capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(b"--threads", result.stderr)


class LostFiles(unittest.TestCase):
    def test_a_model_that_is_cut_while_it_answers(self):
        model = test_program.SCRATCH / "cut.gguf"
        shutil.copy(test_program.MODELS / "plain.gguf", model)
        process = subprocess.Popen([test_program.PROGRAM, "run", "--no-chat", "-m", str(model), "-p", "Hello", "-n", "10000000",
                                    "--compute", "f32"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertNotEqual(process.stdout.read(1), b"")  # it has begun to answer
        os.truncate(model, 4096)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, error)
        self.assertIn(b"became shorter while it was in use", error)


if __name__ == "__main__":
    test_program.main()
