"""Context files that are damaged, wrong, in use or in the way: what ingest, ask and context say, and what stays.

usage: test_context_files.py PROGRAM WRITE_TINY_MODELS [unittest arguments]
"""

import contextlib
import json
import os
import pathlib
import random
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "context"))
import verify  # noqa: E402
from test_program import read_floats, write_ids  # noqa: E402

PROGRAM = ""
MODELS = pathlib.Path()
SCRATCH = pathlib.Path()
WORDS = "river stone left under a the ring of who asked and then nothing".split()
LONGHEADS = "longheads,chunk=16,window=64,begin=128"


def text_of(seed, n_words):
    words = random.Random(seed)
    return " ".join(words.choice(WORDS) for _ in range(n_words))


def model(name="plain"):
    return ["-m", MODELS / f"{name}.gguf", "-t", 1]


def ingest(out, text, *more, name="plain"):
    return ["ingest", "-p", text, "-o", out, *model(name), "--compute", "f32", "--quiet", *more]


def append(out, text, *more, name="plain"):
    return ["context", "append", out, "-p", text, *model(name), "--quiet", *more]


def ask(file, *questions, more=(), name="plain", n=2):
    return ["ask", file, *model(name), "-n", n, "--json", "--quiet", *(x for q in questions for x in ("-q", q)), *more]


def argv(command):
    return [PROGRAM, *map(str, command)]


def run(command, before=(), **keywords):
    return subprocess.run([*map(str, before), *argv(command)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=120, **keywords)


def start(command, **keywords):
    return subprocess.Popen(argv(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **keywords)


def digest(data):
    """What stands for the bytes of a file where they are compared."""
    return len(data), verify.checksum(data)


def contents(folder):
    return {file.name: digest(file.read_bytes()) for file in folder.iterdir() if file.is_file()}


def answers(output):
    """What --json printed, without how long it took and what came from disk; an error as it stands."""
    return [{key: value for key, value in json.loads(line).items() if key not in ("seconds", "kv_traffic")}
            for line in output.splitlines()]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = SCRATCH / self.id()
        self.folder.mkdir()
        self.file = self.folder / "book.lhctx"

    def tearDown(self):
        shutil.rmtree(self.folder)

    def must(self, command, **keywords):
        result = run(command, **keywords)
        self.assertEqual(result.returncode, 0, (command[:2], result.stderr))
        return result.stdout

    def says(self, error, *words):
        """One sentence of an error, with these words."""
        sentences = [line for line in error.decode().splitlines() if line.startswith("longheads: ")]
        self.assertEqual(len(sentences), 1, error)
        for word in words:
            self.assertIn(str(word), sentences[0])

    def refused(self, command, *words, **keywords):
        before = contents(self.folder)
        result = run(command, **keywords)
        self.assertEqual((result.returncode, result.stdout), (2, b""), (command[:2], result.stderr))
        self.says(result.stderr, *words)
        self.assertEqual(contents(self.folder), before)

    def flip(self, data, offset):
        self.file.write_bytes(data[:offset] + bytes([data[offset] ^ 0x40]) + data[offset + 1:])


def with_metadata(data, name, value):
    """The same file of one checkpoint, whose header says something else, as long, under a name; every checksum is right."""
    changed = bytearray(data)
    header_bytes, metadata_bytes = struct.unpack_from("<2Q", data, 16)
    metadata = json.loads(data[72:72 + metadata_bytes])
    old = metadata[name].encode()
    at = data.index(old, 72, 72 + metadata_bytes)
    assert len(value) == len(old)
    changed[at:at + len(old)] = value.encode()
    seal(changed, 0, header_bytes)
    file_id = bytes(changed[header_bytes - 8:header_bytes])
    for slot in (0, 1):
        superblock = header_bytes + slot * verify.BLOCK
        offset, head_bytes, _ = struct.unpack_from("<3Q", data, superblock + 24)
        changed[superblock + 8:superblock + 16] = file_id
        changed[offset + 8:offset + 16] = file_id
        seal(changed, offset, head_bytes)
        reference = struct.pack("<2Q", offset, head_bytes) + changed[offset + head_bytes - 8:offset + head_bytes]
        changed[superblock + 24:superblock + 72] = reference * 2
        seal(changed, superblock, verify.BLOCK)
    return bytes(changed)


def seal(data, offset, size):
    struct.pack_into("<Q", data, offset + size - 8, verify.checksum(bytes(data[offset:offset + size - 8])))


class OtherFiles(Case):
    def setUp(self):
        super().setUp()
        self.must(ingest(self.file, text_of(1, 60)))

    def every_command(self, *words, file=None):
        file = file or self.file
        for command in (ask(file, "who?"), ["context", "info", file], ["context", "verify", file],
                        append(file, "more"), ["context", "export", "--tokens", file]):
            self.refused(command, file, *words)

    def test_another_model_or_vocabulary(self):
        for name in ("other-weights", "other-shape", "other-vocabulary"):
            for command in (["ask", self.file, "-q", "who?"], ["context", "append", self.file, "-p", "more"],
                            ["context", "export", self.file]):
                self.refused([*command, *model(name)], self.file, "another model", "plain.gguf", "-m")
        data = self.file.read_bytes()
        self.file.write_bytes(with_metadata(data, "tokenizer_fingerprint", "0123456789abcdef"))
        verify.read(self.file)
        for command in (ask(self.file, "who?"), append(self.file, "more")):
            self.refused(command, self.file, "another vocabulary", "plain.gguf")

    def test_what_a_header_says_does_not_steer_the_terminal(self):
        program = json.loads(self.must(["context", "info", self.file, "--json"]))["program"]
        self.file.write_bytes(with_metadata(self.file.read_bytes(), "program", "\\u001b[31m".ljust(len(program), "x")))
        said = self.must(["context", "info", self.file])
        self.assertNotIn(b"\x1b", said)
        self.assertIn("\ufffd[31m".encode(), said)

    def test_options_that_it_was_not_read_with(self):
        for options, words in ((["--compute", "bf16"], "--compute f32, not bf16"),
                               (["--kv-type", "q8"], "--kv-type f32, not q8"),
                               (["--rope-scale", 4], "not with --rope-scale 4")):
            for command in (ask(self.file, "who?"), append(self.file, "more")):
                self.refused([*command, *options], words, "leave")
        self.must([*ask(self.file, "who?"), "--compute", "f32", "--kv-type", "f32"])
        self.assertEqual(run([*ask(self.file, "who?"), "--attn", "full"]).returncode, 2)

    def test_other_versions(self):
        data = bytearray(self.file.read_bytes())
        header_bytes = struct.unpack_from("<Q", data, 16)[0]
        for version, words in ((2, "newer"), (0, "no longer read")):
            struct.pack_into("<I", data, 12, version)
            seal(data, 0, header_bytes)
            self.file.write_bytes(data)
            self.every_command(f"version {version}", words)

    def test_what_is_no_context_file(self):
        other = self.folder / "other"
        self.every_command("no such file", file=self.folder / "missing.lhctx")
        self.every_command("is a folder", file=self.folder)
        for data, words in ((b"", ""), (b"LHCTX", ""), (b"A text.\n" * 1000, "not a context file")):
            other.write_bytes(data)
            self.every_command(words, file=other)
        other.unlink()
        os.mkfifo(other)
        self.every_command("pipe", file=other)
        other.unlink()
        other.symlink_to("/dev/null")
        self.every_command("device", file=other)

    def test_what_is_no_context_file_is_not_replaced(self):
        self.refused(ingest(self.folder, "text"), "is a folder")
        self.refused(ingest(self.folder / "no" / "book.lhctx", "text"), "no such")
        other = self.folder / "other"
        other.write_bytes(b"A text.\n" * 1000)
        self.refused(ingest(other, "text"), other, "not a context file")
        other.unlink()
        os.mkfifo(other)
        self.refused(ingest(other, "text"), other, "pipe")
        self.assertEqual(sorted(os.listdir(self.folder)), ["book.lhctx", "other"])

    @unittest.skipIf(shutil.which("setpriv") is None, "needs setpriv")
    def test_what_may_not_be_read(self):
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        if run(["--version"], before=nobody).returncode != 0:
            self.skipTest("the program lies where only root may run it")
        os.chmod(self.file, 0)
        for command in (ask(self.file, "who?"), ["context", "verify", self.file], append(self.file, "more")):
            result = run(command, before=nobody)
            self.assertEqual((result.returncode, result.stdout), (2, b""), result.stderr)
            self.says(result.stderr, self.file, "no permission")


class Damage(Case):
    def setUp(self):
        super().setUp()
        self.must(ingest(self.file, text_of(1, 60)))
        self.data = self.file.read_bytes()
        with open(self.file, "rb") as file:
            self.context = verify.ContextFile(file)
            self.text = verify.Text(self.context, self.context.superblock["finished"])

    def test_a_cut_anywhere_is_refused(self):
        body = self.context.body
        for size in (0, 1, 71, 4095, 4096, body - 4096, body - 1, body, len(self.data) // 2, len(self.data) - 4096):
            self.file.write_bytes(self.data[:size])
            for command in (ask(self.file, "who?"), ["context", "verify", self.file], append(self.file, "more")):
                self.refused(command, self.file)

    def test_a_flipped_byte_of_header_or_checkpoint_is_refused(self):
        checkpoint, head_bytes, _ = self.context.superblock["finished"]
        for offset in (0, 9, 16, 40, 80, 4090, checkpoint, checkpoint + 30, checkpoint + head_bytes - 3,
                       checkpoint + head_bytes + 1, checkpoint + head_bytes + 4 * len(self.text.tokens) + 1):
            self.flip(self.data, offset)
            for command in (ask(self.file, "who?"), ["context", "info", self.file], ["context", "verify", self.file],
                            append(self.file, "more"), ["context", "export", "--tokens", self.file]):
                self.refused(command, self.file)

    def test_one_superblock_is_enough(self):
        expected = answers(self.must(ask(self.file, "who?")))
        for slot in (0, 1):
            self.flip(self.data, self.context.body - verify.BLOCK * (2 - slot) + 30)
            self.assertEqual(answers(self.must(ask(self.file, "who?"))), expected)
            result = run(["context", "verify", self.file])
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"superblock {slot} is damaged", result.stdout.decode())
            self.says(result.stderr, self.file, "damaged in 1 place")
        both = self.file.read_bytes()
        self.flip(both, self.context.body - verify.BLOCK * 2 + 30)
        self.refused(ask(self.file, "who?"), self.file, "superblock")

    def test_a_page_ends_the_questions_that_need_it(self):
        offset, _ = self.text.pages[0]
        self.flip(self.data, offset + 100)
        self.must(["context", "info", self.file])
        self.must(["context", "export", "--tokens", self.file])
        self.refused(ask(self.file, "who?")[:-2] + ["-q", "who?"], self.file, f"page at byte {offset} is damaged")
        appended = run(append(self.file, "more"))
        self.assertEqual(appended.returncode, 2)
        self.says(appended.stderr, self.file, f"page at byte {offset} is damaged", "is kept")
        self.assertNotIn(b"goes on", appended.stderr)
        verified = run(["context", "verify", self.file])
        self.assertEqual(verified.returncode, 2)
        self.assertIn(f"page 0 of layer 0, head 0 at offset {offset}", verified.stdout.decode())
        several = run(ask(self.file, "who?", "where?"))
        self.assertEqual(several.returncode, 2)
        self.assertEqual([sorted(one) for one in answers(several.stdout)], [["error", "question"]] * 2)
        lines = several.stderr.decode().splitlines()
        self.assertEqual(len(lines), 3)
        self.assertIn("question 2", lines[1])
        self.assertIn("2 of 2 questions have no answer", lines[2])
        self.assertIn(f"context verify {self.file}", lines[2])

    def test_a_page_that_is_not_chosen_is_not_missed(self):
        """Questions beside the one that chooses a damaged page are answered as if nothing was wrong."""
        questions = ["a", "nothing under the stone"]
        self.must(ingest(self.file, text_of(2, 1500), "--attn", LONGHEADS))
        data = self.file.read_bytes()
        expected = answers(self.must(ask(self.file, *questions)))
        places = [offset for _, (offset, _) in sorted(verify.read(self.file).pages.items())]
        for offset in places[len(places) // 4::3]:  # other pages, layers and heads in turn; all see the first
            self.flip(data, offset + 100)
            result = run(ask(self.file, *questions))
            got = answers(result.stdout)
            failed = ["error" in one for one in got]
            self.assertEqual(result.returncode, 2 if any(failed) else 0, result.stderr)
            self.assertEqual([one["question"] for one in got], questions)
            for one, as_before in zip(got, expected):
                if "error" in one:
                    self.assertIn(f"page at byte {offset} is damaged", one["error"])
                else:
                    self.assertEqual(one, as_before)
            if any(failed) and not all(failed):
                return
        self.fail("no page was chosen by some questions and not by others")


class WhileOpen(Case):
    """Questions to a file that stays open: what each of them follows, and what happens to the file meanwhile. Not all
    of its pages may be in memory, so that every question needs the file."""

    TEXT = text_of(1, 1500)  # 2.8 MiB
    QUESTIONS = ["of who", "who asked", "under the stone"]  # the model ends its answer to the first; -n, the others

    def setUp(self):
        super().setUp()
        self.must(ingest(self.file, self.TEXT, "--attn", LONGHEADS, name="chat"))
        self.asking = None

    def tearDown(self):
        if self.asking:
            self.asking.kill()
            self.asking.communicate()
        super().tearDown()

    def ask(self, *questions, more=(), file=None, name="chat"):
        return ask(file or self.file, *questions, more=["--kv-ram", "2m", *more], name=name, n=8)

    def open(self, *more):
        command = [word for word in self.ask(more=more) if word != "--quiet"]
        self.asking = start(command, stdin=subprocess.PIPE)
        self.assertIn(b"opened in", self.asking.stderr.readline())

    def question(self, text):
        self.asking.stdin.write(text.encode() + b"\n")
        self.asking.stdin.flush()
        return answers(self.asking.stdout.readline())[0]

    def end(self):
        error = self.asking.communicate(timeout=60)[1]
        return self.asking.returncode, error

    def undisturbed(self, *more, questions=QUESTIONS):
        """The answers of a session in which nothing happens to the file."""
        self.open(*more)
        got = [self.question(text) for text in questions]
        self.assertEqual(self.end()[0], 0)
        return got

    def test_each_question_starts_from_the_text(self):
        alone = {text: answers(self.must(self.ask(text)))[0] for text in self.QUESTIONS}
        self.assertEqual(len({tuple(one["tokens"]) for one in alone.values()}), len(self.QUESTIONS))
        for questions in (self.QUESTIONS, self.QUESTIONS[::-1], self.QUESTIONS[:1] * 3):
            expected = [alone[text] for text in questions]
            self.assertEqual(answers(self.must(self.ask(*questions))), expected)
            self.assertEqual(self.undisturbed(questions=questions), expected)

    def test_questions_come_from_options_and_lines(self):
        first, second = self.QUESTIONS[:2]
        both = self.must([word for word in self.ask(first, second) if word != "--json"])
        self.assertEqual(both.decode().count("> "), 2)
        command = argv([word for word in self.ask() if word != "--json"])
        lines = lambda text: subprocess.run(command, input=text.encode(), capture_output=True, timeout=120)
        self.assertEqual(lines(f"{first}\n\n{second}\n").stdout, both)
        for empty in ("", "\n \n"):
            told = lines(empty)
            self.assertEqual((told.returncode, told.stdout), (2, b""))
            self.says(told.stderr, "no question", "-q")
        # An option takes one question: what follows it may be the file.
        last = [word for word in self.ask(first) if word != self.file] + [self.file]
        self.assertEqual(answers(self.must(last)), answers(self.must(self.ask(first))))
        for options, status in (([], 2), (["--replace-invalid"], 0)):
            latin = subprocess.run([*argv(self.ask()), "-q", b"caf\xe9?", *options], capture_output=True, timeout=120)
            self.assertEqual((latin.returncode, b"not UTF-8" in latin.stderr), (status, status == 2), latin.stderr)

    def test_what_went_between_memory_and_disk_is_counted_for_each_question(self):
        told = [json.loads(line)["kv_traffic"] for line in self.must(self.ask(*[self.QUESTIONS[1]] * 3)).splitlines()]
        asked = [one["hits"] + one["misses"] for one in told]
        self.assertGreater(asked[0], 0)
        self.assertEqual(asked, asked[:1] * 3)  # of one question, and not of those before it
        for one in told:
            self.assertGreater(one["bytes_read"], 0)
            self.assertGreater(one["read_ahead"], 0)
            self.assertGreater(one["planned"], one["planned_in_memory"])
            self.assertGreater(one["planned_in_memory"], 0)
        # With room for all, the disk is needed once.
        roomy = ask(self.file, *[self.QUESTIONS[1]] * 2, more=["--kv-ram", "64m"], name="chat", n=8)
        first, second = (json.loads(line)["kv_traffic"] for line in self.must(roomy).splitlines())
        self.assertGreater(first["bytes_read"], 0)
        self.assertEqual(second["bytes_read"], 0)
        self.assertEqual((second["planned_in_memory"], second["misses"]), (second["planned"], 0))

    def token_ids(self, name, text):
        model_file = MODELS / f"{name}.gguf"
        return json.loads(self.must(["tokenize", "-m", model_file, "--special", "-p", text, "--json"]))

    def likeliest(self, name, ids):
        """Behind each of these tokens, by the logits of all of them at once."""
        given, out = self.folder / "ids.npy", self.folder / "logits.npy"
        write_ids(given, ids)
        self.must(["logits", "--tokens", given, "--out", out, *model(name), "--compute", "f32", "--attn", LONGHEADS])
        logits = read_floats(out)
        n_vocab = len(logits) // len(ids)
        rows = (logits[i * n_vocab:(i + 1) * n_vocab] for i in range(len(ids)))
        return [row.index(max(row)) for row in rows]

    def test_a_thread_goes_on_behind_its_answers(self):
        """Each token of an answer is the likeliest behind all that was said before it, with a template and without."""
        plain = self.folder / "plain.lhctx"
        self.must(ingest(plain, self.TEXT, "--attn", LONGHEADS))
        opening, ending = "<|im_start|>assistant\n", "<|im_end|>\n"
        for name, file, questions, first, later in (
                ("chat", self.file, self.QUESTIONS, "\n\n{}" + ending + opening,
                 ending + "<|im_start|>user\n{}" + ending + opening),
                ("plain", plain, ["who a", *self.QUESTIONS[1:]], "\n\n{}", "\n\n{}")):
            alone = answers(self.must(self.ask(*questions, file=file, name=name)))
            thread = answers(self.must(self.ask(*questions, more=["--chat"], file=file, name=name)))
            self.assertEqual([one["stop"] for one in thread], ["stop", "length", "length"])  # kept in different ways
            said = [int(token) for token in self.must(["context", "export", "--tokens", file]).split()]
            answered = []  # (where it begins in what was said, its tokens)
            for one in thread:
                said += self.token_ids(name, (later if answered else first).format(one["question"]))
                answered.append((len(said), one["tokens"]))
                said += one["tokens"]
            likeliest = self.likeliest(name, said)
            for begin, tokens in answered:
                self.assertEqual(tokens, likeliest[begin - 1:begin - 1 + len(tokens)])
            begin, tokens = answered[0]
            ends = [self.token_ids(name, end)[0] for end in ("<|im_end|>", "<|endoftext|>")]
            self.assertIn(likeliest[begin - 1 + len(tokens)], ends)
            # The tokens are not the likeliest behind the text and the question alone.
            self.assertEqual(thread[0], alone[0])
            for in_thread, by_itself in zip(thread[1:], alone[1:]):
                self.assertNotEqual(in_thread["tokens"], by_itself["tokens"])

    def test_it_shrinks_and_is_restored(self):
        data = self.file.read_bytes()
        for more in ((), ("--chat",)):
            first, second, third = self.undisturbed(*more)
            self.open(*more)
            self.assertEqual(self.question(first["question"]), first)
            os.truncate(self.file, len(data) // 16)
            failed = self.question(second["question"])
            self.assertEqual(sorted(failed), ["error", "question"])
            self.assertIn("cut off", failed["error"])
            self.assertIn(str(self.file), failed["error"])
            self.file.write_bytes(data)
            # A thread has not moved.
            self.assertEqual(self.question(second["question"]), second)
            self.assertEqual(self.question(third["question"]), third)
            status, error = self.end()
            self.assertEqual(status, 2)
            self.assertIn(b"1 of 4 questions have no answer", error)

    def test_it_grows_is_appended_to_and_replaced(self):
        """Who opened it before has the answers of the old text; who opens it now, of the new one."""
        data = self.file.read_bytes()

        def grow():
            with open(self.file, "ab") as file:
                file.write(b"something" * 1000)

        expected = {more: self.undisturbed(*more) for more in ((), ("--chat",))}
        for more, old in expected.items():
            for change in (grow, lambda: self.must(append(self.file, text_of(2, 100), name="chat")),
                           lambda: self.must(ingest(self.file, text_of(3, 20), name="chat"))):
                self.file.write_bytes(data)
                self.open(*more)
                got = [self.question(old[0]["question"])]
                change()
                got += [self.question(one["question"]) for one in old[1:]]
                self.assertEqual(got, old)
                self.assertEqual(self.end()[0], 0)
                self.must(["context", "verify", self.file])
                anew = self.undisturbed(*more)
                self.assertEqual([one["tokens"] for one in anew] == [one["tokens"] for one in old], change is grow)


class TwoWriters(Case):
    SLOW = ["--backend", "ref"]

    def begun(self, command, ready):
        """The process of a command, stopped once it writes."""
        process = start(command)
        while process.poll() is None and not ready():
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.assertIsNone(process.poll(), "it ended before it could be stopped")
        before = None
        while before != (before := contents(self.folder)):  # what the system was writing for it comes to its end
            time.sleep(0.3)
        return process

    def ended(self, process):
        process.send_signal(signal.SIGCONT)
        error = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 0, error)

    def test_the_second_is_refused_and_the_first_is_whole(self):
        text, more = text_of(1, 700), text_of(2, 700)
        self.must(ingest(self.file, text, *self.SLOW))
        read = self.file.read_bytes()
        self.must(append(self.file, more, *self.SLOW))
        appended = self.file.read_bytes()
        self.file.unlink()
        partial = self.folder / "book.lhctx.partial"

        first = self.begun(ingest(self.file, text, *self.SLOW), lambda: partial.exists() and partial.stat().st_size > 0)
        for command in (ingest(self.file, "another text"), ingest(self.file, "another text", "--restart")):
            self.refused(command, self.file, "another process is writing it")
        self.ended(first)
        self.assertEqual(contents(self.folder), {"book.lhctx": digest(read)})

        first = self.begun(append(self.file, more, *self.SLOW), lambda: self.file.stat().st_size > len(read))
        for command in (append(self.file, "another text"), ingest(self.file, "another text")):
            self.refused(command, self.file, "another process is writing it")
        self.assertEqual(len(answers(self.must(ask(self.file, "who?")))), 1)  # readers are not disturbed
        self.ended(first)
        self.assertEqual(contents(self.folder), {"book.lhctx": digest(appended)})


# A shell with mounts of its own, where the system lets this user have one.
PRIVATE_MOUNTS = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
# Makes a small disk of the folder $1, $2 bytes large, with what is in it, runs the rest, and puts what is left there
# into the folder $3.
ON_A_SMALL_DISK = """
disk=$1 size=$2 left=$3
shift 3
mkdir "$left" && cp -a "$disk/." "$left" || exit 99
mount -t tmpfs -o "size=$size" none "$disk" && cp -a "$left/." "$disk" || exit 99
"$@"
status=$?
rm -rf "$left" && cp -a "$disk" "$left" || exit 99
exit $status
"""
ON_A_READ_ONLY_DISK = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 99
shift
exec "$@"
"""


def may_mount():
    try:
        return subprocess.run([*PRIVATE_MOUNTS, "mount", "-t", "tmpfs", "none", SCRATCH], capture_output=True,
                              timeout=60).returncode == 0
    except FileNotFoundError:
        return False


def files_up_to(size):
    """For preexec_fn: no file may grow larger, as on a disk that is full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class FullDisks(Case):
    """A file that may not grow stands for a full disk everywhere; a disk that is full, where one may be mounted."""

    LONG = text_of(1, 700)  # a block, and a part of one
    MORE = text_of(2, 300)

    def setUp(self):
        super().setUp()
        self.partial = self.folder / "book.lhctx.partial"
        self.left = self.folder.with_name(self.folder.name + ".left")

    def tearDown(self):
        shutil.rmtree(self.left, ignore_errors=True)
        super().tearDown()

    def on_small_disk(self, size, command):
        """The result, and what is on the disk after."""
        if not may_mount():
            self.skipTest("no rights to mount a small disk: files that may not grow stand for it")
        shutil.rmtree(self.left, ignore_errors=True)
        result = run(command, before=[*PRIVATE_MOUNTS, "sh", "-c", ON_A_SMALL_DISK, "sh", self.folder, size, self.left])
        self.assertNotEqual(result.returncode, 99, result.stderr)
        return result, contents(self.left)

    def sizes(self):
        """Of the file of LONG alone, and with MORE behind it; and their bytes."""
        self.must(ingest(self.file, self.LONG))
        read = self.file.read_bytes()
        self.must(append(self.file, self.MORE))
        appended = self.file.read_bytes()
        self.file.unlink()
        return read, appended

    def test_ingest_and_append_leave_what_was_there(self):
        read, appended = self.sizes()
        # Not even the first block has room.
        self.file.write_bytes(read)
        self.refused(ingest(self.file, self.MORE), self.partial, "cannot write", "nothing of the text was kept",
                     preexec_fn=files_up_to(len(read) // 8))
        self.refused(append(self.file, self.MORE), self.file, "cannot write", "is kept",
                     preexec_fn=files_up_to(len(read) + 8192))
        self.must(["context", "verify", self.file])
        # The second has none: what was read stays, and goes on to the same bytes.
        full = run(ingest(self.file, self.LONG, "--restart"), preexec_fn=files_up_to(len(read) - 4096))
        self.assertEqual(full.returncode, 2)
        self.says(full.stderr, self.partial, "cannot write", "up to token 2048 is kept", "the same command goes on")
        self.assertEqual(sorted(contents(self.folder)), ["book.lhctx", "book.lhctx.partial"])
        self.assertEqual(contents(self.folder)["book.lhctx"], digest(read))
        self.must(ingest(self.file, self.LONG))
        self.must(append(self.file, self.MORE))
        self.assertEqual(contents(self.folder), {"book.lhctx": digest(appended)})

    def test_a_disk_that_is_too_small_is_found_before_the_work(self):
        read, appended = self.sizes()
        result, left = self.on_small_disk(len(read) // 2, ingest(self.file, self.LONG))
        self.assertEqual((result.returncode, left), (2, {}))
        self.says(result.stderr, self.partial, "more tokens take", "are free there: make room")
        # What was begun is not thrown away for what has no room either.
        run(ingest(self.file, self.LONG), preexec_fn=files_up_to(len(read) - 4096))
        begun = contents(self.folder)
        self.assertEqual(list(begun), [self.partial.name])
        longer = ingest(self.file, " ".join([self.LONG] * 4), "--restart")
        result, left = self.on_small_disk(self.partial.stat().st_size + 65536, longer)
        self.assertEqual((result.returncode, left), (2, begun))
        self.says(result.stderr, self.partial, "more tokens take", "are free there: make room")
        self.partial.unlink()
        self.file.write_bytes(read)
        result, left = self.on_small_disk(len(read) + 65536, append(self.file, self.MORE))
        self.assertEqual((result.returncode, left), (2, {"book.lhctx": digest(read)}))
        self.says(result.stderr, self.file, "more tokens take", "are free there: make room")

    def test_a_disk_that_is_full_in_the_end(self):
        read, appended = self.sizes()
        result, left = self.on_small_disk(len(read) - 4096, ingest(self.file, self.LONG))
        self.assertEqual((result.returncode, list(left)), (2, [self.partial.name]))
        self.says(result.stderr, self.partial, "No space left on device; make room", "up to token 2048 is kept")
        shutil.copyfile(self.left / self.partial.name, self.partial)
        self.must(ingest(self.file, self.LONG))
        self.assertEqual(contents(self.folder), {"book.lhctx": digest(read)})
        result, left = self.on_small_disk(len(appended) - 4096, append(self.file, self.MORE))
        self.assertEqual((result.returncode, left), (2, {"book.lhctx": digest(read)}))
        self.says(result.stderr, self.file, "No space left on device; make room")

    def test_a_folder_that_may_only_be_read(self):
        self.must(ingest(self.file, text_of(1, 60)))
        if os.geteuid() == 0:
            if not may_mount():
                self.skipTest("root may write everywhere, and mount nothing")
            before = [*PRIVATE_MOUNTS, "sh", "-c", ON_A_READ_ONLY_DISK, "sh", self.folder]
        else:
            before = []
            self.file.chmod(0o444)
            self.folder.chmod(0o555)
        for command in (ingest(self.file, "text"), ingest(self.folder / "new.lhctx", "text"),
                        append(self.file, "more")):
            self.refused(command, self.folder, before=before)
        self.must(ask(self.file, "who?"), before=before)
        self.must(["context", "verify", self.file], before=before)
        self.folder.chmod(0o755)


class Overflow(Case):
    """The folder of --kv-disk."""

    TEXT = text_of(1, 1500)  # 2.8 MiB; the least that --kv-ram may be is 2

    def read(self, *more, ram="2m", disk=None, n=1):
        return ["run", "--no-chat", "-p", self.TEXT, *model(), "--compute", "f32", "--attn", "full", "-n", n,
                "--kv-ram", ram, "--kv-disk", disk or self.folder, *more]

    def test_no_folder_and_no_room(self):
        missing = self.folder / "missing"
        self.refused(self.read(disk=missing), missing, "no such")
        self.refused(self.read("--kv-disk-max", "100k"), "--kv-disk-max", "100.0 KiB")
        self.refused(self.read(ram="1k"), "--kv-ram is 1.0 KiB")
        self.refused(self.read(), self.folder, "cannot write", preexec_fn=files_up_to(65536))

    def test_blocks(self):
        self.refused(self.read("--kv-blocks", 3), "--kv-blocks is 3", "4", "32")
        for n in (33, -1, "many"):
            result = run(self.read("--kv-blocks", n))
            self.assertEqual(result.returncode, 2)
            self.assertIn(b"--kv-blocks", result.stderr)
        parts = {}
        for flags in ((), ("--kv-blocks", "8")):
            self.must(ingest(self.file, "a text", *flags))
            parts[flags] = verify.read(self.file).context.metadata["block_parts"]
            self.file.unlink()
        self.assertEqual(parts, {(): 32, ("--kv-blocks", "8"): 8})
        # Fewer parts are larger blocks, for which a plan has room; without a word it says what a slow disk may cost.
        plan = ["info", *model(), "-c", 3000000, "--attn", "full", "--compute", "f32", "--kv-ram", "1g", "--kv-disk", self.folder]
        told = {n: self.must([*plan, "--kv-blocks", n]).decode() for n in (0, 4, 32)}
        larger = {n: float(re.search(r"larger blocks ([\d.]+) MiB", told[n])[1]) for n in told}
        self.assertEqual(larger[0], larger[32])
        self.assertGreater(larger[4], larger[32])
        self.assertEqual(["\nblocks " in told[n] for n in told], [True, False, False])
        self.assertIn(f"up to {larger[4]:.1f} MiB", told[0])

    def test_a_small_disk(self):
        if not may_mount():
            self.skipTest("no rights to mount a small disk: files that may not grow stand for it")
        left = self.folder.with_name(self.folder.name + ".left")
        small = [*PRIVATE_MOUNTS, "sh", "-c", ON_A_SMALL_DISK, "sh", self.folder, "256k", left]
        result = run(self.read(), before=small)
        self.assertEqual((result.returncode, contents(left)), (2, {}))
        self.says(result.stderr, self.folder, "--kv-disk", "256.0 KiB free")
        shutil.rmtree(left)

    def test_nothing_is_left_there(self):
        self.must(self.read())
        self.assertEqual(os.listdir(self.folder), [])
        process = start(self.read("--backend", "ref", n=1000000))
        while process.poll() is None and not any(
                name.startswith(str(self.folder)) for name in open_files(process.pid)):
            time.sleep(0.001)
        time.sleep(0.2)
        self.assertIsNone(process.poll(), "it ended before it could be killed")
        process.kill()
        process.communicate()
        self.assertEqual(os.listdir(self.folder), [])


def open_files(pid):
    """The names of a process's open files; one that it closes meanwhile may be missing."""
    names = []
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(link))
    return names


class Interrupted(Case):
    SLOW = ["--backend", "ref"]

    def interrupted(self, command, ready, **keywords):
        process = start(command, **keywords)
        while process.poll() is None and not ready(process):
            time.sleep(0.001)
        self.assertIsNone(process.poll(), "it ended before it could be interrupted")
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        return output, error

    def test_ingest(self):
        partial = self.folder / "book.lhctx.partial"
        text = text_of(1, 1400)
        self.must(ingest(self.file, text, *self.SLOW))
        whole = self.file.read_bytes()
        self.file.unlink()
        # Before a block was read: nothing is left.
        _, error = self.interrupted(ingest(self.file, text, *self.SLOW), lambda _: partial.exists())
        self.says(error, "interrupted; nothing of the text was kept")
        self.assertEqual(contents(self.folder), {})
        # Behind one: the same command goes on, and another one does not.
        with_pages = len(whole) // 4
        _, error = self.interrupted(ingest(self.file, text, *self.SLOW),
                                    lambda _: partial.exists() and partial.stat().st_size > with_pages)
        self.says(error, "interrupted; the text up to token 2048 is kept", "the same command goes on")
        self.assertEqual(list(contents(self.folder)), [partial.name])
        self.refused(ingest(self.file, "another text", *self.SLOW), partial, "another text", "--restart")
        self.refused(ask(partial, "who?"), partial, "no finished text")
        self.refused(ask(self.file, "who?"), self.file, partial, "the same command again")
        # With the types that it began with, whatever "auto" would take now.
        self.must([word for word in ingest(self.file, text, *self.SLOW) if word not in ("--compute", "f32")])
        self.assertEqual(contents(self.folder), {"book.lhctx": digest(whole)})

    def test_append(self):
        self.must(ingest(self.file, text_of(1, 60), *self.SLOW))
        before = self.file.read_bytes()
        more = append(self.file, text_of(2, 700), *self.SLOW)
        self.interrupted(more, lambda _: self.file.stat().st_size > len(before))
        self.must(["context", "verify", self.file])
        self.assertEqual(len(answers(self.must(ask(self.file, "who?")))), 1)
        self.refused(append(self.file, "another text", *self.SLOW), self.file, "another text")
        self.must(more)
        self.assertEqual(list(contents(self.folder)), ["book.lhctx"])
        self.must(["context", "verify", self.file])

    def test_ask(self):
        self.must(ingest(self.file, text_of(1, 60)))
        before = contents(self.folder)
        asked = ["ask", self.file, *model(), "--kv-disk", self.folder]
        output, _ = self.interrupted([*asked, "-n", 1000000, "-q", "who?"],
                                     lambda process: select.select([process.stdout], [], [], 0)[0])
        self.assertNotEqual(output, b"")
        # While it waits for a question.
        self.interrupted(asked, lambda process: b"opened in" in process.stderr.readline(), stdin=subprocess.PIPE)
        self.assertEqual(contents(self.folder), before)


class Again(Case):
    """What a command does that finds its work done, or another's begun."""

    def info(self):
        return json.loads(self.must(["context", "info", self.file, "--json"]))

    def test_a_text_that_is_there_is_not_read_again(self):
        self.must(ingest(self.file, text_of(1, 200)))
        before = self.file.stat()
        told = run([word for word in ingest(self.file, text_of(1, 200)) if word != "--quiet"])
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn(b"holds this text already", told.stderr)
        self.assertEqual((self.file.stat().st_ino, self.file.stat().st_mtime_ns), (before.st_ino, before.st_mtime_ns))
        # Nor where the model has another name, or "auto" stood for these types.
        linked = MODELS / "linked.gguf"
        linked.symlink_to(MODELS / "plain.gguf")
        self.must(ingest(self.file, text_of(1, 200), name="linked"))
        self.must([word for word in ingest(self.file, text_of(1, 200)) if word not in ("--compute", "f32")])
        self.assertEqual(self.file.stat().st_ino, before.st_ino)
        self.must(ingest(self.file, text_of(1, 200), "--restart"))
        self.assertNotEqual(self.file.stat().st_ino, before.st_ino)
        self.must(append(self.file, text_of(3, 20)))
        before = self.file.read_bytes()
        told = run([word for word in ingest(self.file, text_of(1, 200)) if word != "--quiet"])
        self.assertRegex(told.stderr, rb"holds this text already, and \d+ tokens that were appended; --restart")
        self.assertEqual((told.returncode, self.file.read_bytes()), (0, before))
        self.must(ingest(self.file, text_of(2, 200)))  # another text takes its place, as ever
        self.assertIn(text_of(2, 200).encode()[:40], self.must(["context", "export", self.file, *model()]))

    def test_what_share_of_the_time_was_waiting_is_said(self):
        told = run([word for word in ingest(self.file, text_of(1, 200)) if word != "--quiet"])
        self.assertEqual(told.returncode, 0, told.stderr)
        share = re.search(rb"1 threads waited [0-9.]+ s in all, ([0-9.]+)% of the time", told.stderr)
        self.assertIsNotNone(share, told.stderr)
        if abs(float(share[1]) - 20) > 0.1:  # it is printed rounded
            self.assertEqual(b"a larger --kv-ram" in told.stderr, float(share[1]) > 20)

    def test_keys_and_values_go_to_the_file_itself(self):
        self.must(ingest(self.file, text_of(1, 200)))
        for flag, value in (("--kv-disk", self.folder), ("--kv-disk", "/var/tmp"), ("--kv-disk-max", "1g")):
            self.refused(ingest(self.folder / "other.lhctx", "text", flag, value), "--kv-disk", "other.lhctx itself")
            self.refused(append(self.file, "text", flag, value), "--kv-disk", "book.lhctx itself")

    def leave_unfinished(self, text):
        """An append that is killed behind its first block."""
        before = self.info()
        process = start([*append(self.file, text), "--backend", "ref"])
        while process.poll() is None and not self.info()["unfinished_tokens"]:
            time.sleep(0.01)
        process.kill()
        process.communicate()
        info = self.info()
        self.assertGreater(info["unfinished_tokens"], 0, "it ended before it could be killed")
        self.assertEqual(info["tokens"], before["tokens"])

    def test_an_addition_that_is_there_is_not_finished_with_half_of_another(self):
        self.must(ingest(self.file, text_of(1, 200)))
        behind = ("--behind", str(self.info()["tokens"]))
        self.must(append(self.file, text_of(2, 2000), *behind))
        self.leave_unfinished(text_of(2, 2000))  # the same text once more, by somebody who did not say behind what
        before = self.info()
        told = run([word for word in append(self.file, text_of(2, 2000), *behind) if word != "--quiet"])
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn(b"has this text already", told.stderr)
        self.assertIn(b"stays unfinished", told.stderr)
        self.assertEqual(self.info(), before)

    def test_an_addition_that_is_there_leaves_a_later_one_that_was_begun(self):
        self.must(ingest(self.file, text_of(1, 200)))
        behind = ("--behind", str(self.info()["tokens"]))
        self.must(append(self.file, text_of(2, 100), *behind))
        self.leave_unfinished(text_of(3, 2000))
        before = self.info()
        for restart in ([], ["--restart"]):
            told = run([word for word in append(self.file, text_of(2, 100), *behind, *restart) if word != "--quiet"])
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertIn(b"has this text already", told.stderr)
            self.assertEqual(self.info(), before)
        # What is refused drops nothing.
        wrong = ("--behind", str(before["tokens"] + 1), "--restart")
        self.refused(append(self.file, text_of(2, 100), *wrong), self.file, "--behind")

    def test_an_unfinished_addition_that_was_damaged_can_be_dropped(self):
        self.must(ingest(self.file, text_of(1, 200)))
        whole = self.file.read_bytes()
        tokens = self.info()["tokens"]
        self.leave_unfinished(text_of(2, 2000))
        data = bytearray(self.file.read_bytes())
        for at in range(len(whole), len(data), verify.BLOCK):
            data[at] ^= 0x40
        self.file.write_bytes(data)
        said = self.must(["context", "info", self.file])
        self.assertIn(f"{tokens} tokens".encode(), said)
        self.assertIn(b"cannot be read", said)
        self.assertIn("damaged", self.info()["unfinished_damage"])
        self.must(["context", "verify", self.file])
        self.refused(append(self.file, text_of(2, 2000)), self.file, "damaged", "--restart drops")
        self.must(append(self.file, "other words", "--restart"))
        self.assertGreater(self.info()["tokens"], tokens)
        self.assertFalse(self.info()["unfinished"])

    def test_an_unfinished_addition_can_be_dropped(self):
        self.must(ingest(self.file, text_of(1, 200)))
        self.leave_unfinished(text_of(2, 2000))
        self.refused(append(self.file, "other words"), "another text was being added", "--restart")
        self.refused(append(self.file, "other words", "--restart", name="other-weights"), "another model")
        self.must(append(self.file, "other words", "--restart"))
        self.assertFalse(self.info()["unfinished"])
        self.assertIn(b"other words", self.must(["context", "export", self.file, *model()])[-40:])

    def test_an_addition_that_was_interrupted_at_its_very_end_is_not_read_twice(self):
        self.must(ingest(self.file, text_of(1, 200)))
        (header_bytes,) = struct.unpack_from("<Q", self.file.read_bytes(), 16)
        before = struct.unpack_from("<3Q", self.file.read_bytes(), header_bytes + 48)  # its finished checkpoint
        self.must(append(self.file, text_of(2, 100)))
        whole, tokens = self.file.read_bytes(), self.info()["tokens"]
        # Finishing writes a superblock, and the same once more into the other's place: as before that.
        last = max((header_bytes, header_bytes + 4096), key=lambda at: struct.unpack_from("<Q", whole, at + 16))
        changed = bytearray(whole)
        struct.pack_into("<Q", changed, last + 16, struct.unpack_from("<Q", whole, last + 16)[0] - 2)
        struct.pack_into("<3Q", changed, last + 48, *before)
        struct.pack_into("<Q", changed, last + 4088, verify.checksum(bytes(changed[last : last + 4088])))
        for more in ([], ["--restart"]):
            self.file.write_bytes(changed)
            told = run([word for word in append(self.file, text_of(2, 100), *more) if word != "--quiet"])
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertIn(b"has this text already", told.stderr)
            self.assertEqual(self.info()["tokens"], tokens)
            self.assertEqual(verify.read(self.file).summary()["superblocks"], 2)
        # What only ends like it is another text.
        self.file.write_bytes(changed)
        self.must(append(self.file, text_of(2, 100).split(" ", 1)[1]))
        self.assertGreater(self.info()["tokens"], tokens)
        self.file.write_bytes(whole)
        # Behind so many tokens it is added once, however often that is said, and nothing else is.
        behind = ("--behind", str(self.info()["tokens"]))
        for _ in range(3):
            self.must(append(self.file, text_of(4, 50), *behind))
            added = self.info()["tokens"]
        once = self.file.read_bytes()
        told = run([word for word in append(self.file, text_of(4, 50), *behind) if word != "--quiet"])
        self.assertIn(b"has this text already", told.stderr)
        self.refused(append(self.file, text_of(5, 50), *behind), "--behind", str(added), behind[1])
        self.refused(append(self.file, text_of(4, 51), *behind), "--behind")
        self.assertEqual(self.file.read_bytes(), once)
        self.file.write_bytes(whole)
        # Whoever says it again means it.
        self.must(append(self.file, text_of(2, 100)))
        self.assertGreater(self.info()["tokens"], tokens)

    def test_a_text_is_exported_to_a_file_but_not_over_what_it_comes_from(self):
        self.must(ingest(self.file, text_of(1, 200)))
        before = self.file.read_bytes()
        link = self.folder / "link"
        link.symlink_to(self.file)
        for out in (self.file, link):
            self.refused(["context", "export", self.file, *model(), "-o", out], "--out", "the context file itself")
            self.refused(["context", "export", self.file, "--tokens", "-o", out], "--out", "the context file itself")
        # What would have no effect.
        for words, named in (([*model(), "--kv-ram", "1g"], b"--kv-ram"), (["--tokens", *model()], b"excludes")):
            told = run(["context", "export", self.file, *words])
            self.assertEqual(told.returncode, 2)
            self.assertIn(named, told.stderr)
        weights = model()[1]
        self.refused(["context", "export", self.file, *model(), "-o", weights], "--out", "the model file itself")
        self.assertEqual(self.file.read_bytes(), before)
        said = self.must(["context", "export", self.file, *model()])
        self.must(["context", "export", self.file, *model(), "-o", self.folder / "text.txt"])
        self.assertEqual((self.folder / "text.txt").read_bytes(), said)


class Format(Case):
    """What ingest and append write is what docs/context-file.md says, as a reader knows that was written from it."""

    def test_another_reader_finds_the_same_text(self):
        env = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}
        self.must(["fit-esa", *model(), "--n-local", 64], env=env)
        methods = [("full", "plain"), (LONGHEADS, "plain"), ("self-extend,group=4,window=64", "plain"),
                   ("infllm,n_init=4,n_local=64,block=16,top_k=2,representatives=2,exec_block=32", "plain"),
                   ("esa,n_init=4,k=32,n_local=64,chunk=32", "plain"), ("moba,chunk=64,top_k=2", "plain"),
                   ("quest,page=16,budget=64,dense_layers=1", "plain"),
                   ("landmark,block=16,top_k=2,token=272", "other-vocabulary")]
        for method, name in methods:
            for kv_type in ("f32", "bf16", "q8"):
                with self.subTest(method=method, kv_type=kv_type):
                    self.must(ingest(self.file, text_of(1, 300), "--attn", method, "--kv-type", kv_type, "--restart",
                                     name=name), env=env)
                    one = verify.read(self.file).summary()
                    self.must(append(self.file, text_of(2, 200), name=name), env=env)
                    two = verify.read(self.file).summary()
                    info = json.loads(self.must(["context", "info", self.file, "--json"]))
                    for key in ("tokens", "model_tokens", "checkpoints", "state_bytes"):
                        self.assertEqual(two[key], info[key], key)
                    for key, value in two["metadata"].items():
                        self.assertEqual(info[key], value, key)
                    self.assertEqual(two["metadata"]["attention"], method)
                    self.assertEqual(two["kv_type"], {"f32": "float32", "bf16": "bfloat16", "q8": "q8"}[kv_type])
                    self.assertLess(one["tokens"], two["tokens"])
                    self.assertLess(one["checkpoints"], two["checkpoints"])


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # also for who is not root
        MODELS = pathlib.Path(name) / "models"
        SCRATCH = pathlib.Path(name) / "scratch"
        SCRATCH.mkdir()
        subprocess.run([sys.argv[2], str(MODELS)], check=True)
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
