"""The texts of the tokenizer goldens: fixed ones that aim at one behaviour each, and random ones from a seed.

Code points are limited to those that Unicode 14 assigns (the version of Python 3.11 and of Debian's PCRE2), so
that a newer table in the oracle does not count as a difference.
"""

import random
import unicodedata

SENTENCES = """\
The quick brown fox jumps over the lazy dog, and nobody's ever told it why.
It's what they've always said: we'll go, you'd stay, I'm done, he's late, they're here.
IT'S WHAT THEY'VE ALWAYS SAID: WE'LL GO, YOU'D STAY, I'M DONE.
The pass key is 36695. Remember it. 36695 is the pass key.
In 1984 the price rose by 12.75% to $1,299.00 (about €1.180,50 or ¥180000).
Call +49 30 1234567 between 08:30 and 17:45, or write to someone@example.org.
A long-context model reads the whole book; every head looks at the few pages that matter to it.
"Well," she said -- quietly -- "that's that." Then: nothing... at all?!
naïve café, résumé, Übermut, façade, Ærøskøbing, smörgåsbord, señor, garçon, Łódź, İstanbul, ŐŰ.
Phở bò Hà Nội rất ngon; Nguyễn Thị Ánh học tiếng Việt ở Đà Nẵng từ năm 2019.
Người Việt Nam dùng chữ Quốc ngữ với nhiều dấu thanh: ắ ằ ẳ ẵ ặ ế ề ể ễ ệ.
Съешь же ещё этих мягких французских булок, да выпей чаю.
Ο γρήγορος καφετί αλεπού πηδά πάνω από το τεμπέλικο σκυλί.
敏捷的棕色狐狸跳过了懒狗。长上下文模型需要选择重要的片段，而不是读完全部。
いろはにほへと ちりぬるを。カタカナとひらがな、漢字が混ざる文章です。
다람쥐 헌 쳇바퀴에 타고파. 긴 글을 읽는 모델은 중요한 부분만 본다.
النص العربي يُكتب من اليمين إلى اليسار، وفيه حركاتٌ وأرقام مثل ١٢٣٤.
זה משפט בעברית עם ניקוד: שָׁלוֹם עוֹלָם.
यह हिन्दी का एक वाक्य है जिसमें मात्राएँ और अंक १२३ हैं।
ภาษาไทยไม่มีช่องว่างระหว่างคำ และมีวรรณยุกต์ เช่น ก่ ก้ ก๊ ก๋
தமிழ் மொழி மிகவும் பழமையானது. বাংলা ভাষা সুন্দর। ქართული ენა. Հայերեն լեզու.
for (int i = 0; i < n; ++i) { sum += values[i] * weights[i]; }  // dot product
def attend(query, keys, values):\n    scores = query @ keys.T / math.sqrt(d)\n    return softmax(scores) @ values
SELECT name, count(*) FROM users WHERE created_at >= '2024-01-01' GROUP BY name HAVING count(*) > 10;
{"model": "tiny", "layers": 30, "heads": [9, 3], "rope": 100000.0, "tied": true, "note": null}
<html><body class="main">\n\t<p>Hello &amp; welcome</p>\n</body></html>
#include <vector>\n\nint main() {\n\treturn 0;\n}\n
if [[ -f "$HOME/.config" ]]; then\n  echo "found ${x:-none}" | grep -v '^#' >> /dev/null 2>&1\nfi
https://example.org/path/to/page?query=a%20b&lang=en#section-2
C:\\\\Users\\\\name\\\\file_name-v1.2.txt and ./relative/path/../to/it
f(x) = ∫₀^∞ e^{-x²} dx ≤ √π/2 ≈ 0.886 ∀ x ∈ ℝ; α→β ⇒ ¬γ ∨ δ
I'm so happy 😀😃 today 🎉🎉🎉!!! Let's go 🚀🚀 to the 🌙... ❤️ ☕️ ✔︎
👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 thumbs, 🇩🇪🇯🇵 flags, 1️⃣2️⃣3️⃣ keycaps, 🧑🏿‍🚀
""".replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\").splitlines(keepends=False)

FIXED = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r\n\r\n", "\r", " \n", "\n ", " \n \n ",
    "a", " a", "  a", "   a", "a ", "a  ", "a   ", "a b", "a  b", "a   b", "a\nb", "a\n\nb", "a \n b", "a\tb", "\ta",
    "\t\ta", " \ta", "\t a", "a\r\nb", "a\r\n\r\nb", "a\n    b", "a\n\tb", "a\n\n\n    b", "x\n \n y", "x \n\n\t\n y",
    "    if x:\n        return y\n", "\n\n  \n\n", "  \n  \n", "!\n", "!\n\n", "! \n", "!\r\n", "...\n\n\n...", ";\n\n}",
    "don't", "DON'T", "Don'T", "can't've", "'s", "'S", " 's", "''s", "'ll", "'LL", "'lL", "'re", "'RE", "x'd", "x'D",
    "'\u017f", "x'\u017f y", "'K", "’s", "it’s", "'sa", "'Rest", "x'Very", "'Rex's", "'tis", "'twas", "rock'n'roll", "'", "''", "'''", "l'été",
    "1", "12", "123", "1234", "12345", "123456", "1234567890", " 1", " 12", " 123", " 1234", "1 2", "1 23 456", "a1",
    "1a", "a1b2c3", "3.14159", "1,000,000", "0x1F", "1e-10", "2024-01-31", "v1.2.3", "½", "x²", "²³", "Ⅷ", "١٢٣", "१२३",
    "①②③", "1²", "٣٤٥٦", "𝟙𝟚𝟛", "12ab34", "99%", "$99", "-1", "+1", "1st", "00", "000", "0000", "00000",
    "!", "!!", "!!!", "!?", "?!", ".", "..", "...", "....", ",", ", ", "a,b", "a, b", "(a)", "[a]", "{a}", "<a>", "a=b",
    "a==b", "a!=b", "a->b", "a::b", "a//b", "/*a*/", "#a", "@a", "a@b", "a_b", "_a", "__a__", "a-b", "a--b", "--a", "~",
    "`a`", "```", "```python\n", "^a", "a^b", "a|b", "|", "||", "$", "$a", "a$", "+", "a+b", "++a", "<", "<=", ">", ">=",
    "«a»", "“a”", "‘a’", "—", "–", "…", "·", "•", "§1", "©2024", "™", "°C", "¿qué?", "¡sí!", "。", "、", "！", "？",
    "Hello", "hello", "HELLO", "hEllO", "HelloWorld", "hello_world", "helloworld", "Hello, world!", " Hello", "Hello ",
    "\u00a0", "a\u00a0b", "\u00a0a", "a\u00a0\u00a0b", "\u2003", "a\u2003b", "\u3000", "a\u3000b", "\u3000\u3000a",
    "\u1680a", "\u180e", "a\u180eb", "\u180e\u180e", " \u180ea", "\u200b", "a\u200bb", "\ufeff", "\ufeffa", "\u2028",
    "a\u2028b", "\u2029\u2029", "\u0085", "a\u0085b", "\u0085\u0085a", "\u000b", "a\u000bb", "\u000ca", "\u001c",
    "a\u001cb", "\u001fa", "\u202f", "1\u202f000", "\u205fa", "\u2060", "\u00ad", "a\u00adb",
    "e\u0301", "\u0301", "\u0301a", "cafe\u0301", "a\u0300\u0301\u0302", "n\u0303o", "A\u030a", "\u1e9b\u0323", "ﬁ", "ﬀi",
    "İ", "ı", "ß", "ẞ", "ſ", "K", "Å", "Ω", "ǅ", "ŉ", "ÿ", "Ÿ", "ﷺ", "㎏", "ﾊﾟ", "ガ", "カ\u3099", "각", "각",
    "不", "中文", "中文字", "中 文", "中文abc", "abc中文", "中文123", "日本語テスト", "한국어", "你好，世界！", "「引用」",
    "😀", "😀😀", " 😀", "😀 ", "a😀", "😀a", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "1️⃣", "❤️", "☕", "🧑🏿‍🚀", "👁️‍🗨️",
    "\u200d", "\ufe0f", "\U000e0067", "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\U00010348", "\U0001d11e", "𝒳𝓎",
    "\U00020000", "\U0002a6d6", "\ue000", "\uf8ff", "\U000f0000", "\U0010fffd", "\ufffd", "\ufffc",
    "\u0000", "a\u0000b", "\u0001", "\u0004", "a\u0004b", "\u0006\u0013", "\u0016a", "\u007f", "\u0080", "\u009f",
    "ก่", "ที่", "हिन्दी", "क्षत्रिय", "नमस्ते दुनिया", "مرحبا بالعالم", "السَّلَامُ", "שלום", "Xin chào", "Tiếng Việt",
    "Tiê\u0301ng Viê\u0323t", "Đường", "ƯỚC", "привет", "ПРИВЕТ", "Ελλάδα", "ΣΊΣΥΦΟΣ", "ქართული", "Հայաստան",
    "\u2581", "\u2581a", "a\u2581b", " \u2581 ", "Ġ", "Ġa", "Ċ", "ĠĠ", "ÄĠ",
    " remember", "remember foxes", " foxes, 123 remember", "<s>", "</s>", "<unk>", "a<unk>b", "<0x0A>", "<0x41>", "<0xZZ>", "[UNK]", "<|", "|>", "<||>",
]

# (text, repetitions): long runs, whose goldens are a count and a checksum.
RUNS = [
    ("a", 3000), ("ab", 2000), (" ", 3000), ("\n", 3000), ("\t", 1500), (" \n", 1500), ("1", 1500), ("!", 3000),
    ("=", 1500), ("-", 1024), ("中", 900), ("é", 1200), ("e\u0301", 800), ("😀", 600), ("\u00a0", 800), ("\u3000", 700),
    ("abcdefghij", 500), ("the ", 800), ("The quick brown fox. ", 150), ("0123456789", 300), ("\r\n", 900), ("'s", 900),
    ("x ", 1500), (" x\n", 900), ("aA", 1500), ("م", 800), ("ที่", 300), ("<|im_start|>", 200), ("<", 2000), ("<|im", 500),
]

# Ill-formed UTF-8, in bytes.
ILL_FORMED = [
    b"\x80", b"a\x80b", b"\xff", b"\xfe\xff", b"\xc0\xaf", b"\xc1\xbf", b"\xc3", b"a\xc3", b"\xc3(", b"\xe2\x82",
    b"\xe2\x82a", b"\xe2(\xa1", b"\xe0\x80\xaf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80",
    b"\xf0\x9f\x98", b"\xf0\x9f\x98a", b"\xf0\x9f", b"\xf0", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xf0\x9f\x98\x80\xf0\x9f\x98", b"ok \xe4\xb8\xad\xe4\xb8 ok", b"\x80\x80\x80",
    b"\xe4\xb8\xe4\xb8\xad", b"\xc3\xa9\xc3", b"caf\xe9 au lait", b"\xef\xbf", b"\xf1\x80\x80\xe1\x80\xc2b\x80c\x80\xbfd",
]

_BLOCKS = [
    (0x21, 0x7F, 14), (0xA1, 0x250, 5), (0x250, 0x370, 1), (0x300, 0x370, 3), (0x370, 0x530, 3), (0x530, 0x700, 3),
    (0x900, 0xE80, 4), (0x10A0, 0x1200, 1), (0x1E00, 0x2000, 3), (0x2000, 0x2C00, 4), (0x3000, 0x3100, 3),
    (0x4E00, 0x9FFF, 4), (0xAC00, 0xD7A4, 3), (0xE000, 0xE100, 1), (0xF900, 0x10000, 2), (0x10000, 0x12000, 1),
    (0x1D400, 0x1D800, 1), (0x1F000, 0x1FB00, 4), (0x20000, 0x2A6D0, 1),
]
_SPACES = [" "] * 12 + ["\n"] * 5 + ["\t", "\t", "\r", "\r\n", "\u00a0", "\u2009", "\u3000", "\u0085", "\u2028", "\u180e",
                                    "\u200b", "\u000b", "\u000c", "\u001e"]
_WORDS = [w for s in SENTENCES for w in s.split(" ")]


def _code_point(rng):
    while True:
        low, high, _ = rng.choices(_BLOCKS, weights=[b[2] for b in _BLOCKS])[0]
        c = chr(rng.randrange(low, high))
        if unicodedata.category(c) not in ("Cn", "Cs"):
            return c


def _random_text(rng):
    kind = rng.randrange(7)
    n = rng.randrange(1, 14)
    if kind == 0:
        return "".join(_code_point(rng) for _ in range(n))
    if kind == 1:
        return "".join(rng.choice(_SPACES) if rng.random() < 0.5 else _code_point(rng) for _ in range(n))
    if kind == 2:
        return "".join(rng.choice(_SPACES) for _ in range(n))
    if kind == 3:
        return "".join(rng.choice(_WORDS) + rng.choice(_SPACES) for _ in range(rng.randrange(1, 5)))
    if kind == 4:
        return "".join(rng.choice("0123456789.,-+eE ab\n") for _ in range(n))
    if kind == 5:
        return "".join(chr(rng.randrange(0x20, 0x7F)) for _ in range(n))
    return rng.choice(_WORDS) + "".join(rng.choice(["'s", "'T", "'", "_", "-", "\n", " ", "  ", "1", "é", "中", "😀", ".", "A"])
                                        for _ in range(n))


def _with_special(rng, special):
    parts = []
    for _ in range(rng.randrange(1, 5)):
        parts.append(rng.choice(_WORDS + ["\n", " ", ""]) if rng.random() < 0.5 else _random_text(rng)[:6])
        parts.append(rng.choice(special))
    return "".join(parts + [rng.choice(["", " ", "\n", "end"])])


def texts(seed, n_random, special):
    """Returns (texts, runs, ill-formed): `special` are the texts of special tokens, which some texts contain."""
    rng = random.Random(seed)
    out = list(FIXED) + SENTENCES
    for s in special:
        out += [s, s + s, " " + s, s + " ", "a" + s + "b", s + "\n", s[:-1], s[1:], s[:-1] + s, "<" + s + ">"]
    out += [_with_special(rng, special) for _ in range(n_random // 8)]
    out += [_random_text(rng) for _ in range(n_random)]
    seen = {}
    for text in out:
        seen.setdefault(text)
    return list(seen), RUNS, ILL_FORMED


def training_corpus():
    """What the small vocabularies are trained on: the sentences, some of their words often, digits and code."""
    rng = random.Random(7)
    lines = []
    for _ in range(40):
        lines += SENTENCES
        lines.append(" ".join(rng.choice(_WORDS) for _ in range(30)))
        lines.append(" ".join(str(rng.randrange(10 ** rng.randrange(1, 8))) for _ in range(12)))
        lines.append("\n" * rng.randrange(1, 5) + " " * rng.randrange(1, 17) + "return x;\n\t\t}\n\n")
    return lines
