"""Traces, views and reports as users make them: what is traced is read again by a reader that shares nothing with the
program, pages hold what they should and load nothing, and what cannot be written is said.

usage: test_pictures.py PROGRAM WRITE_TINY_MODELS [unittest arguments]
"""

import html.parser
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "trace"))
import read_trace  # noqa: E402

PROGRAM = ""
MODELS = pathlib.Path()
SCRATCH = pathlib.Path()
METHOD = "longheads,chunk=16,window=64,begin=64"
TEXT = "The needle is <script>alert('x')</script> & \"quotes\". " + "One two three four five six seven. " * 20


def run(*arguments, timeout=120, **more):
    return subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=timeout, **more)


def answer(*more, attn=METHOD):
    return ["run", "-m", MODELS / "plain.gguf", "--no-chat", "-p", TEXT, "-n", 6, "--attn", attn, *more]


class Elements(html.parser.HTMLParser):
    """Names and attributes of a page's elements, and the text of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.found, self.scripts, self.inside = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


class Case(unittest.TestCase):
    def succeeds(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def fails(self, words, *arguments, **more):
        result = run(*arguments, **more)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(words, result.stderr.decode())
        self.assertEqual(len(result.stderr.decode().strip().splitlines()[-1:]), 1)
        return result

    def loads_nothing(self, elements):
        for tag, attributes in elements.found:
            self.assertNotIn(tag, ("img", "link", "iframe", "object", "embed", "base", "form"))
            for name, value in attributes.items():
                self.assertFalse(name.startswith("on"), (tag, name))
                if name in ("src", "href", "action", "data", "srcset"):
                    self.assertTrue(value.startswith("#"), (tag, name, value))


class Traces(Case):
    def test_hold_what_the_answer_was_made_of(self):
        trace = SCRATCH / "a.trace"
        plain = self.succeeds(*answer("--quiet"))
        traced = self.succeeds(*answer("--trace", trace, "--trace-prompt"))
        self.assertEqual(traced.stdout, plain.stdout)
        self.assertIn(b"trace: ", traced.stderr)
        parts = list(read_trace.read_trace(trace.read_bytes()))
        header = parts[0]
        self.assertEqual(header["attn"], METHOD)
        self.assertEqual(header["blocks"], {"first": 0, "tokens": 16})
        tokens = [part for part in parts if part["kind"] == "tokens"]
        self.assertEqual(len(tokens[0]["ids"]), header["prompt_tokens"])
        self.assertEqual("".join(tokens[0]["texts"]).replace("\u2581", " ").strip()[-20:], TEXT.strip()[-20:])
        selections = [part for part in parts if part["kind"] == "selection"]
        self.assertEqual([part["position"] for part in selections],
                         [header["prompt_tokens"] - 1 + i for i in range(len(selections))])
        self.assertEqual(len(tokens[1]["ids"]), len(selections))
        for part in selections:
            own = part["position"] // 16
            for row in part["rows"]:  # recounted from the definition: the chosen, and three that always are
                taken = [block for block, _ in row["taken"]]
                self.assertEqual(len(taken), 1)  # K = 4
                self.assertTrue(all(0 < block < own - 1 for block in taken))
                keys = {key for begin, end in row["seen"] for key in range(begin, end)}
                chunks = {0, own - 1, own, *taken}
                self.assertEqual(keys, {key for chunk in chunks for key in range(16 * chunk, 16 * chunk + 16)
                                        if key <= part["position"]})
        # Recounted key by key.
        needle, lines = b"needle", list(read_trace.seen(parts, b"needle"))
        self.assertEqual([line["position"] for line in lines], [part["position"] for part in selections])
        text = b"".join(raw for part in tokens for raw in part["raw"])
        begin, end = read_trace.key_range([raw for part in tokens for raw in part["raw"]], text.find(needle),
                                          text.find(needle) + len(needle))
        for line, part in zip(lines, selections):
            whole = [all(any(b <= key < e for b, e in row["seen"]) for key in range(begin, end)) for row in part["rows"]]
            self.assertEqual((line["saw_all"], line["heads"]), (sum(whole), len(whole)))
            self.assertEqual(sum(line["layers"]), line["saw_all"])
            self.assertLessEqual(line["saw_all"], line["saw_some"])
        counts = [part for part in parts if part["kind"] == "counts"]
        self.assertEqual(counts[0]["begin"], 0)
        self.assertEqual(counts[-1]["end"], header["prompt_tokens"])

    def test_has_the_keys_that_were_read(self):
        trace = SCRATCH / "keys.trace"
        for attn in ("full", METHOD, METHOD + ",reps=kv,select=kv", "self-extend,group=4,window=32"):
            said = json.loads(self.succeeds(*answer("--trace", trace, "--json", "--quiet", attn=attn)).stdout)
            counted = read_trace.keys_read(read_trace.read_trace(trace.read_bytes()), 2)  # 4 heads, 2 of keys
            self.assertEqual(counted, {"tokens": said["answer_tokens"] - 1, "keys_read": said["keys_read"]}, attn)

    def test_of_every_kind_of_method(self):
        for attn in ("full", "auto", "infllm,n_init=4,n_local=64,block=8,top_k=3,exec_block=32", "moba,chunk=16",
                     "quest,page=8,budget=40", "streaming-llm,start=4,recent=64", "self-extend"):
            trace = SCRATCH / "kind.trace"
            self.succeeds(*answer("--trace", trace, "--trace-prompt", attn=attn))
            self.assertGreater(read_trace.summary(read_trace.read_trace(trace.read_bytes()))["selections"], 0)
            page, figure = SCRATCH / "kind.html", SCRATCH / "kind.svg"
            self.succeeds("view", trace, "-o", page, "--svg", figure)

    def test_of_a_question_to_a_text_that_was_read_before(self):
        book, context, trace = SCRATCH / "book.txt", SCRATCH / "book.lhctx", SCRATCH / "ask.trace"
        book.write_text(TEXT)
        self.succeeds("ingest", "-m", MODELS / "plain.gguf", "-f", book, "-o", context, "--attn", METHOD, "--quiet")
        model = ["-m", MODELS / "plain.gguf"]
        ask = ["ask", context, *model, "-q", "What is the needle?", "-n", 6, "--json", "--quiet"]
        plain, traced = (json.loads(self.succeeds(*ask, *more).stdout) for more in ([], ["--trace", trace]))
        self.assertEqual(traced["tokens"], plain["tokens"])
        # `run` reads the same prompt at once: all that its heads chose and saw, they chose and saw.
        again = SCRATCH / "run.trace"
        self.succeeds("run", *model, "--no-chat", "-p", f"{TEXT.strip()}\n\nWhat is the needle?", "-n", 6,
                      "--attn", METHOD, "--trace", again)
        parts, others = (list(read_trace.read_trace(path.read_bytes())) for path in (trace, again))
        ids, other_ids = ([part["ids"] for part in of if part["kind"] == "tokens"] for of in (parts, others))
        self.assertEqual(ids, other_ids)
        self.assertEqual(ids[1], traced["tokens"])
        selections, other = ([part for part in of if part["kind"] == "selection"] for of in (parts, others))
        self.assertEqual(len(selections), len(traced["tokens"]))
        self.assertEqual(selections, other)
        self.assertTrue(any(row["taken"] for part in selections for row in part["rows"]))
        self.succeeds("view", trace, "-o", SCRATCH / "ask.html")
        self.fails("/dev/full", *ask, "--trace", "/dev/full")
        self.fails("cannot write", *ask, "--trace", SCRATCH / "no" / "such" / "folder")
        self.fails("one answer", "ask", context, *model, "--trace", trace)
        self.fails("one answer", *ask, "-q", "And then?", "--trace", trace)

    def test_do_not_take_the_place_of_what_is_read(self):
        book, context = SCRATCH / "kept.txt", SCRATCH / "kept.lhctx"
        book.write_text(TEXT)
        model = ["-m", MODELS / "plain.gguf"]
        self.succeeds("ingest", *model, "-f", book, "-o", context, "--attn", METHOD, "--quiet")
        link = SCRATCH / "link.lhctx"
        link.symlink_to(context)
        before = {path: path.read_bytes() for path in (book, context, MODELS / "plain.gguf")}
        for taken in (context, link):
            self.fails("context file itself", "ask", context, *model, "-q", "Who?", "--trace", taken)
        self.fails("model file itself", "ask", context, *model, "-q", "Who?", "--trace", MODELS / "plain.gguf")
        self.fails("model file itself", *answer("--trace", MODELS / "plain.gguf"))
        self.fails("-f itself", "run", *model, "--no-chat", "-f", book, "--attn", METHOD, "--trace", book)
        self.assertEqual({path: path.read_bytes() for path in before}, before)

    def test_that_cannot_be_written_leave_the_answer(self):
        plain = self.succeeds(*answer("--quiet"))
        full = self.fails("/dev/full", *answer("--trace", "/dev/full"))
        self.assertEqual(full.stdout, plain.stdout)
        trace = SCRATCH / "limited.trace"
        limit = lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                         resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
        limited = self.fails("limited.trace", *answer("--trace", trace), preexec_fn=limit)
        self.assertEqual(limited.stdout, plain.stdout)
        self.assertFalse(trace.exists())
        self.assertEqual([path for path in SCRATCH.iterdir() if path.name.startswith(".longheads")], [])
        self.fails("cannot write", *answer("--trace", SCRATCH / "no" / "such" / "folder"))
        self.fails("--trace", *answer("--trace-prompt"))

    def test_of_pass_keys_have_the_key_outlined(self):
        folder = SCRATCH / "traces"
        self.succeeds("eval", "passkey", "-m", MODELS / "plain.gguf", "--attn", METHOD, "--lengths", "1k", "--depths", 2,
                      "--form", "plain", "-n", 4, "--trace", folder)
        files = sorted(folder.iterdir())
        self.assertEqual(len(files), 2)
        for file in files:
            parts = list(read_trace.read_trace(file.read_bytes()))
            text = "".join(text for part in parts if part["kind"] == "tokens" for text in part["texts"])
            needle = parts[0]["needle"]
            words = text.encode()[needle["begin"] : needle["end"]].decode()
            self.assertRegex(words, r"^The pass key is \d{5}\..*\d{5} is the pass key\.$")
            self.assertTrue(all(part["position"] >= parts[0]["prompt_tokens"] - 1
                                for part in parts if part["kind"] == "selection"))
            self.assertLessEqual(read_trace.summary(parts)["selections"], 4)


class Views(Case):
    def setUp(self):
        self.trace, self.page, self.figure = SCRATCH / "v.trace", SCRATCH / "v.html", SCRATCH / "v.svg"
        self.succeeds(*answer("--trace", self.trace, "--trace-prompt"))

    def test_page_and_figure(self):
        self.succeeds("view", self.trace, "-o", self.page, "--svg", self.figure, "--needle", "<script>alert('x')")
        elements = Elements(self.page.read_text())
        self.loads_nothing(elements)
        self.assertEqual(len(elements.scripts), 2)  # the data, and the page's own
        data = json.loads(elements.scripts[0])
        self.assertEqual(data["needle"]["text"], "<script>alert('x')")
        self.assertIn("<script>alert('x')</script> & \"quotes\".", "".join(data["texts"]))
        self.assertEqual(data["edges"][0], 0)
        self.assertEqual(len(data["texts"]), len(data["edges"]) - 1)
        self.assertTrue(data["frames"][0]["prompt"])
        tree = xml.etree.ElementTree.parse(self.figure)
        self.assertNotIn("script", {element.tag.split("}")[-1] for element in tree.iter()})
        self.succeeds("view", self.trace, "--svg", self.figure, "--token", 2)

    def test_what_is_wrong_is_said(self):
        self.fails("-o FILE", "view", self.trace)
        self.fails("--needle", "view", self.trace, "-o", self.page, "--needle", "not in there")
        self.fails("--token", "view", self.trace, "--svg", self.figure, "--token", 99)
        self.fails("not a trace", "view", MODELS / "plain.gguf", "-o", self.page)
        damaged = SCRATCH / "damaged.trace"
        whole = self.trace.read_bytes()
        damaged.write_bytes(whole[:-9])
        self.fails("cut off", "view", damaged, "-o", self.page)
        damaged.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
        self.fails("damaged", "view", damaged, "-o", self.page)
        self.fails("/dev/full", "view", self.trace, "-o", "/dev/full")
        for flag in ("-o", "--svg"):
            self.fails("the trace itself", "view", self.trace, flag, self.trace)
        self.assertEqual(self.trace.read_bytes(), whole)


class Reports(Case):
    def test_of_what_evaluations_left(self):
        results, page, figures = SCRATCH / "results", SCRATCH / "r.html", SCRATCH / "figures"
        self.succeeds("eval", "passkey", "-m", MODELS / "plain.gguf", "--attn", METHOD, "--attn", "full", "--lengths",
                      "1k,2k", "--depths", 2, "--form", "plain", "-n", 2, "--out", results)
        for line in (results / "passkey.jsonl").read_text().splitlines():
            record = json.loads(line)
            self.assertGreater(record["threads"], 0)
            self.assertRegex(record["program"], r"^longheads \S+, commit \S+$")
            self.assertTrue(record["machine"])
            self.assertRegex(record["model_fingerprint"], r"^[0-9a-f]{16}$")
        self.succeeds("report", results, "-o", page, "--figures", figures, "--title", "A <b>title</b>")
        for value in (record["program"], record["machine"], record["model_fingerprint"]):
            self.assertIn(f"<dd>{value}</dd>", page.read_text())
        elements = Elements(page.read_text())
        self.loads_nothing(elements)
        self.assertEqual(elements.scripts, [])
        self.assertIn("A &lt;b&gt;title&lt;/b&gt;", page.read_text())
        found = (results / "passkey.jsonl").read_bytes()
        self.fails("name an .html file", "report", results, "-o", results / "passkey.jsonl")
        self.assertEqual((results / "passkey.jsonl").read_bytes(), found)
        names = {path.name for path in figures.iterdir()}
        self.assertIn("1-passkey-free-answers-right.svg", names)
        self.assertIn("1-passkey-free-answers-right-map-1-longheads-chunk-16-window-64-begin-64.svg", names)
        for path in figures.glob("*.svg"):
            xml.etree.ElementTree.parse(path)
        lines = (figures / "1-passkey-free-answers-right.csv").read_text().splitlines()
        self.assertEqual(lines[0], "attn,length,n,failed,value,low,high")
        self.assertEqual(len(lines), 5)

    def test_of_the_committed_results(self):
        page = SCRATCH / "committed.html"
        self.succeeds("report", ROOT / "docs" / "results", "-o", page)
        self.loads_nothing(Elements(page.read_text()))

    def test_what_is_wrong_is_said(self):
        empty = SCRATCH / "empty"
        empty.mkdir()
        self.fails("no results", "report", empty, "-o", SCRATCH / "x.html")
        self.fails("cannot read", "report", SCRATCH / "missing", "-o", SCRATCH / "x.html")
        bad = SCRATCH / "bad"
        bad.mkdir()
        (bad / "passkey.jsonl").write_text('{"attn":1}\n')
        self.fails("line 1", "report", bad, "-o", SCRATCH / "x.html")
        self.assertFalse((SCRATCH / "x.html").exists())


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        MODELS = pathlib.Path(folder) / "models"
        SCRATCH = pathlib.Path(folder) / "scratch"
        SCRATCH.mkdir()
        subprocess.run([sys.argv[2], str(MODELS)], check=True)
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
