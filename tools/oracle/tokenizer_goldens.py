"""Writes tests/golden/tokenizer/: small vocabularies trained here, and the ids that Hugging Face's `tokenizers`
and sentencepiece give for the texts of tokenizer_texts.py.

    python tokenizer_goldens.py [--model MODEL.gguf] [--only smollm2|bpe|spm]

The default model's goldens (smollm2.jsonl) are made from the vocabulary and merges its GGUF holds. Packages are
pinned in requirements-tokenizer.txt.

A golden is one JSON object per line: the text as `text`, `hex` (bytes, ill-formed UTF-8) or `repeat` ([text,
times]); `special` where special tokens are parsed; and either `ids` or, for long texts, `n` and `fnv` (64-bit
FNV-1a over the ids as little-endian 32-bit integers). In bpe.jsonl these fields are grouped by the pre-tokenizers
(names joined by spaces) that give them.
"""

import argparse
import json
import os
import re
import tempfile
from pathlib import Path

import tokenizer_texts
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizer"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
MAX_LISTED_IDS = 24

LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_2 = LLAMA_3.replace("{1,3}", "")


def isolate(regex):
    return pre_tokenizers.Split(Regex(regex), behavior="isolated")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


PRE_TOKENIZERS = {
    "smollm": [pre_tokenizers.Digits(individual_digits=True), byte_level(True)],
    "llama-bpe": [isolate(LLAMA_3), byte_level(False)],
    "qwen2": [isolate(QWEN_2), byte_level(False)],
    "gpt-2": [byte_level(True)],
    # llama.cpp's four expressions in turn; ByteLevel's own expression is the second.
    "default": [isolate(r"[\p{P}\$\+<=>\^~\|]+"),
                isolate(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
                isolate(r"\p{N}+"), isolate("[0-9][0-9][0-9]"), byte_level(False)],
}


def hugging_face_bpe(pre, tokens, types, merges, parse_special):
    vocab = {t: i for i, t in enumerate(tokens) if types[i] == NORMAL}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in merges], ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(PRE_TOKENIZERS[pre])
    # Added tokens take the next free ids; ours keep theirs through this table.
    ids = dict(enumerate(range(len(tokens))))
    for i, text in enumerate(tokens):
        if types[i] == USER_DEFINED or (types[i] == CONTROL and parse_special):
            tokenizer.add_tokens([AddedToken(text, normalized=False, special=types[i] == CONTROL)])
            ids[tokenizer.token_to_id(text)] = i
    return lambda text: [ids[i] for i in tokenizer.encode(text, add_special_tokens=False).ids]


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for b in i.to_bytes(4, "little"):
            h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def answer(ids):
    return {"ids": ids} if len(ids) <= MAX_LISTED_IDS else {"n": len(ids), "fnv": fnv(ids)}


def cases(seed, n_random, special):
    """Yields (the golden's first fields, the text)."""
    texts, runs, ill_formed = tokenizer_texts.texts(seed, n_random, special)
    for text in texts:
        yield {"text": text}, text
    for text, times in runs:
        yield {"repeat": [text, times]}, text * times
    for text in ill_formed:
        yield {"hex": text.hex()}, text.decode("utf-8", "replace")


def write_lines(name, rows):
    path = OUT / name
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{path.name}: {len(rows)} lines, {path.stat().st_size} bytes")


def write_vocabulary(name, vocabulary):
    """One token, merge or score per line, so that a difference can be read."""
    fields = []
    for key, value in vocabulary.items():
        if isinstance(value, list):
            text = "[\n" + ",\n".join(json.dumps(v, ensure_ascii=False) for v in value) + "]"
            if value and isinstance(value[0], int):
                text = json.dumps(value, separators=(",", ":"))
        else:
            text = json.dumps(value, ensure_ascii=False)
        fields.append(f"{json.dumps(key)}: {text}")
    (OUT / name).write_text("{\n" + ",\n".join(fields) + "}\n", encoding="utf-8")
    print(f"{name}: {(OUT / name).stat().st_size} bytes")


def smollm2(model):
    from gguf import GGUFReader
    reader = GGUFReader(model)
    field = lambda key: reader.fields["tokenizer.ggml." + key].contents()
    assert field("model") == "gpt2" and field("pre") == "smollm"
    tokens, types, merges = field("tokens"), [int(t) for t in field("token_type")], field("merges")
    plain = hugging_face_bpe("smollm", tokens, types, merges, False)
    parsed = hugging_face_bpe("smollm", tokens, types, merges, True)
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<file_sep>"]
    rows = []
    for head, text in cases(1, 1300, special):
        ids, special_ids = plain(text), parsed(text)
        rows.append({**head, **answer(ids)})
        if special_ids != ids:
            rows.append({**head, "special": True, **answer(special_ids)})
    write_lines("smollm2.jsonl", rows)


def bpe():
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence([isolate(LLAMA_3), byte_level(False)])
    trained.train_from_iterator(tokenizer_texts.training_corpus(), trainers.BpeTrainer(
        vocab_size=1000, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    state = json.loads(trained.to_str())["model"]
    merges = [" ".join(m) for m in state["merges"]]
    tokens = [t for t, _ in sorted(state["vocab"].items(), key=lambda item: item[1])]
    # Words without merges, which only a tokenizer that ignores merges finds; then special tokens, some of which
    # begin others.
    tokens += [byte_level(False).pre_tokenize_str(word)[0][0] for word in (" remember", "123", " foxes", "Łódź")]
    tokens = list(dict.fromkeys(tokens))
    types = [NORMAL] * len(tokens)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_start|>>", "<|im_end|>", "<|im"]
    user_defined = ["<tool>", "<tool>>", "::"]
    tokens += control + user_defined
    types += [CONTROL] * len(control) + [USER_DEFINED] * len(user_defined)
    write_vocabulary("bpe.json", {
        "model": "bpe", "bos": tokens.index("<|im_start|>"), "eos": tokens.index("<|im_end|>"), "tokens": tokens,
        "types": types, "merges": merges})
    encoders = {(pre, special): hugging_face_bpe(pre, tokens, types, merges, special)
                for pre in PRE_TOKENIZERS for special in (False, True)}
    rows = []
    for head, text in cases(2, 150, control + user_defined):
        rows_of_text = []
        for special in (False, True):
            groups = {}
            for pre in PRE_TOKENIZERS:
                groups.setdefault(json.dumps(answer(encoders[pre, special](text))), []).append(pre)
            row = {**head, **({"special": True} if special else {})}
            row.update({" ".join(pres): json.loads(a) for a, pres in groups.items()})
            rows_of_text.append(row)
        rows.append(rows_of_text[0])
        if {k: v for k, v in rows_of_text[1].items() if k != "special"} != rows_of_text[0]:
            rows.append(rows_of_text[1])
    write_lines("bpe.jsonl", rows)


def hugging_face_llama(pieces, scores, types, parse_special):
    """The tokenizer that transformers makes of a Llama vocabulary: merges in the order of their piece's score."""
    vocab = {p: i for i, p in enumerate(pieces)}
    merges = []
    for piece, i in vocab.items():
        if types[i] == NORMAL:
            parts = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
            local = [(a, b) for a, b in parts if a in vocab and b in vocab]
            merges += [(-scores[i], vocab[a], vocab[b], a, b) for a, b in local]
    merges = [(a, b) for *_, a, b in sorted(merges)]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    if parse_special:  # what lies between them is normalised part by part, so that each begins with a space
        tokenizer.add_special_tokens([AddedToken(p, normalized=False, special=True)
                                      for p, t in zip(pieces, types) if t in (UNKNOWN, CONTROL)])
    return tokenizer


def spm():
    import sentencepiece
    control, user_defined = ["<|user|>", "<|user|>>", "<|end|>"], ["<sep>", "<sep>>", "::"]
    with tempfile.TemporaryDirectory() as folder:
        # As Llama's was trained, but for the size.
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line for text in tokenizer_texts.training_corpus() for line in text.split("\n")]),
            model_prefix=f"{folder}/spm", model_type="bpe", vocab_size=1000, character_coverage=0.995,
            byte_fallback=True, split_digits=True, add_dummy_prefix=True, remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True, normalization_rule_name="identity", control_symbols=control,
            user_defined_symbols=user_defined, num_threads=1, minloglevel=2)
        model = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/spm.model")
    n = model.vocab_size()
    pieces = [model.id_to_piece(i) for i in range(n)]
    scores = [model.get_score(i) for i in range(n)]
    types = [UNKNOWN if model.is_unknown(i) else CONTROL if model.is_control(i) else BYTE if model.is_byte(i)
             else UNUSED if model.is_unused(i) else USER_DEFINED if pieces[i] in user_defined else NORMAL
             for i in range(n)]
    write_vocabulary("spm.json", {"model": "spm", "bos": model.bos_id(), "eos": model.eos_id(),
                                  "unknown": model.unk_id(), "tokens": pieces, "types": types, "scores": scores})

    # sentencepiece never finds control tokens in a text: it encodes what lies between them, each part anew.
    controls = sorted(["<unk>", "<s>", "</s>", *control], key=len, reverse=True)
    split = re.compile("(" + "|".join(map(re.escape, controls)) + ")")

    def encode(text, special):
        if not special:
            return model.encode(text)
        parts = [p for p in split.split(text) if p]
        return [i for p in parts for i in ([model.piece_to_id(p)] if p in controls else model.encode(p))]

    llama = [hugging_face_llama(pieces, scores, types, special) for special in (False, True)]
    rows, n_compared, n_different = [], 0, 0
    for head, text in cases(3, 350, ["<s>", "</s>", *control, *user_defined]):
        ids, special_ids = encode(text, False), encode(text, True)
        if not any(u in text for u in user_defined):  # Hugging Face keeps user-defined tokens elsewhere
            for tokenizer, expected in zip(llama, (ids, special_ids)):
                n_compared += 1
                n_different += tokenizer.encode(text, add_special_tokens=False).ids != expected
        rows.append({**head, **answer(ids)})
        if special_ids != ids:
            rows.append({**head, "special": True, **answer(special_ids)})
    print(f"spm: Hugging Face's Llama tokenizer differs from sentencepiece on {n_different} of {n_compared} texts")
    assert n_different == 0
    write_lines("spm.jsonl", rows)


def main():
    parser = argparse.ArgumentParser()
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    parser.add_argument("--model", default=f"{cache}/longheads/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--only", choices=["smollm2", "bpe", "spm"])
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if args.only in (None, "smollm2"):
        smollm2(args.model)
    if args.only in (None, "bpe"):
        bpe()
    if args.only in (None, "spm"):
        spm()


if __name__ == "__main__":
    main()
