"""Writes tests/golden/scores/texts.json: scores of random texts by the packages that the benchmarks' scorers call.

Usage: scores_goldens.py [--out DIR]

ROUGE comes from `rouge` (LongBench's) and `rouge-score` (InfiniteBench's), edit ratios from `rapidfuzz`, `difflib` and
`fuzzywuzzy`, the latter once with python-Levenshtein and once without. Normal forms of answers are Python's own str
and re, written here from their definition. The "format" entry of the file says what each number is.
"""

import argparse
import difflib
import json
import random
import re
import string
from collections import Counter
from pathlib import Path

import Levenshtein
from fuzzywuzzy import StringMatcher, fuzz
from rapidfuzz import fuzz as rapid
from rouge import Rouge
from rouge_score import rouge_scorer

FORMAT = {
    "a": "the prediction",
    "b": "the reference",
    "rouge_l": "F of rouge-l by the package rouge; 0 where it throws",
    "rouge_lsum": "F of rougeLsum by the package rouge-score, without stemming",
    "indel": "rapidfuzz.fuzz.ratio / 100",
    "blocks": "difflib.SequenceMatcher(None, a, b).ratio()",
    "percent_indel": "fuzzywuzzy.fuzz.ratio where python-Levenshtein is installed",
    "percent_blocks": "fuzzywuzzy.fuzz.ratio where it is not",
    "tokens": "normal form of a: lower case, no ASCII punctuation, no articles, parted at white space",
    "f1": "of the tokens of a and b",
    "f1_characters": "the same of their characters without white space and ASCII punctuation; no list of Chinese marks",
}

WORDS = (
    "a an the The A. is it's not of and to in on Paris paris PARIS London river well-known x_1 3.5 10 2,000 U.S. "
    "e.g. cat cats Cats dog the-dog an' (the) an.other Übung naïve ÉCOLE İstanbul 東京 北京市 ١٢ ½ m² Ⅻ "
    "a\u0301 theatre antler \u00a0 \u2003"
).split(" ")
CODE = "self . x ( ) = + 1 2 return foo bar [ ] i j if : \t \" ' , None len range".split(" ")


def prose(rng, n_words):
    """Words with repeats, stops and newlines; now and then two stops or a line of spaces."""
    parts = []
    for _ in range(n_words):
        parts.append(rng.choice(WORDS))
        parts.append(rng.choices([" ", ". ", ".", "\n", ", ", "  ", " ... ", "\n \n"], [30, 4, 2, 3, 3, 1, 0.5, 0.5])[0])
    return "".join(parts)


def edited(rng, text, words):
    """Some words exchanged, dropped, moved: what a prediction shares with its reference."""
    parts = text.split(" ")
    for _ in range(1 + len(parts) // 4):
        at = rng.randrange(len(parts))
        kind = rng.randrange(4)
        if kind == 0:
            parts[at] = rng.choice(words)
        elif kind == 1 and len(parts) > 1:
            del parts[at]
        elif kind == 2:
            parts.insert(at, rng.choice(words))
        else:
            other = rng.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
    return " ".join(parts)


def pairs(rng):
    yield from [("", ""), ("", "a"), ("...", "x."), (" ", "y"), ("a. ", "b. "), ("the", "the"), ("a b c d", "a b d c")]
    yield "A.B.C", "A.B.D"
    yield "w1 w2 w6 w7 w8. w1 w3 w8 w9 w5", "w1 w2 w3 w4 w5"
    for n_words in [1, 2, 3, 5, 8, 13, 21, 34] * 3:
        text = prose(rng, n_words)
        yield edited(rng, text, WORDS), text
        yield prose(rng, n_words), prose(rng, 1 + n_words // 2)
    for n_words in [3, 6, 10, 16, 25] * 4:
        line = " ".join(rng.choices(CODE, k=n_words))
        yield edited(rng, line, CODE), line
    # Above 200 characters difflib leaves popular ones out.
    for _ in range(4):
        line = " ".join(rng.choices(CODE, k=110))
        yield edited(rng, line, CODE), line


def answer_tokens(text):
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(?:a|an|the)\b", " ", kept).split()


def characters(text):
    return [c for c in text.lower() if c not in string.punctuation and not c.isspace()]


def bag_f1(prediction, reference):
    same = (Counter(prediction) & Counter(reference)).total()
    return 2 * same / (len(prediction) + len(reference)) if same else 0.0


def rouge_l(prediction, reference):
    try:
        return Rouge().get_scores([prediction], [reference], avg=True)["rouge-l"]["f"]
    except ValueError:
        return 0.0


def percent(matcher, a, b):
    fuzz.SequenceMatcher = matcher
    return fuzz.ratio(a, b)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "tests/golden/scores")
    out = parser.parse_args().out
    summary = rouge_scorer.RougeScorer(["rougeLsum"], use_stemmer=False)
    assert Levenshtein.ratio is not None
    cases = [
        {
            "a": a,
            "b": b,
            "rouge_l": rouge_l(a, b),
            "rouge_lsum": float(summary.score(b, a)["rougeLsum"].fmeasure),
            "indel": rapid.ratio(a, b) / 100,
            "blocks": difflib.SequenceMatcher(None, a, b).ratio(),
            "percent_indel": percent(StringMatcher.StringMatcher, a, b),
            "percent_blocks": percent(difflib.SequenceMatcher, a, b),
            "tokens": answer_tokens(a),
            "f1": bag_f1(answer_tokens(a), answer_tokens(b)),
            "f1_characters": bag_f1(characters(a), characters(b)),
        }
        for a, b in pairs(random.Random(6))
    ]
    out.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases)
    text = json.dumps({"format": FORMAT}, indent=1, ensure_ascii=False)[:-2] + ',\n "cases": [\n' + lines + "\n]}\n"
    (out / "texts.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
