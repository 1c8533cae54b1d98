"""Draws what `longheads eval` found: accuracy against length from passkey.csv, perplexity from ppl.csv; and speed against
length, beside other engines, from the peers.csv of `bench/peers/compare.py`.

Usage: plot.py DIR [DIR ...] --out FOLDER     writes FOLDER/passkey.svg, ppl.svg, prefill.svg and decode.svg, as far as there
                                              is data, and prints the same as tables in Markdown

One line for each method, in one colour on all plots, named at its end; bars are 95% intervals, of speeds the range. Where the files hold
several models, texts or settings, the name says which. Rows that differ in nothing drawn are added up. Perplexities
beyond four times the lowest, where nothing is left to compare, are rings at the upper edge, the last one with its value.
The pictures have no background and are readable on a light and on a dark page.
"""

import argparse
import colorsys
import csv
import math
import pathlib
import statistics
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 420, 56, 40, 44
LINE, CHARACTER = 15, 7  # of the text, in pixels
SHIFT = 3  # between lines of neighbours
Z = 1.96  # two-sided 95% quantile of the normal distribution

# What a result depends on beside method and length: it is named where it varies.
SETTINGS = ["model", "model_fingerprint", "text", "text_hash", "form", "filler", "max_tokens", "compute", "kv", "backend", "rope",
            "threads", "processor", "decoded"]

STYLE = """text { font: 12px sans-serif; fill: #1f2328 } .grid { stroke: #7d8590; stroke-opacity: .3 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }"""


class Accuracy:
    """Of free answers, in percent, with Wilson's interval."""

    file, title, log, bars = "passkey", "Pass keys found, % of free answers", False, "95% interval"
    name = file

    def point(self, rows):
        n = sum(int(row["cases"]) for row in rows)
        share = sum(int(row["correct"]) for row in rows) / n
        middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
        half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
        return [100 * value for value in (share, middle - half, middle + half)]

    def cell(self, rows):
        _, low, high = self.point(rows)
        correct, n = (sum(int(row[key]) for row in rows) for key in ("correct", "cases"))
        return f"{correct}/{n} ({max(low, 0):.0f}-{min(high, 100):.0f}%)"

    def ticks(self, points):
        return [0, 20, 40, 60, 80, 100]


class Perplexity:
    """Of the scored tokens, with the interval that `eval ppl` gives."""

    file, title, log, bars = "ppl", "Perplexity of the last tokens of each length", True, "95% interval"
    name = file

    def point(self, rows):
        # The same tokens may have been read by other calls before: they are not more tokens.
        rows = [row for row in rows if row.get("calls") == rows[-1].get("calls")]
        tokens = [int(row["tokens"]) for row in rows]
        mean = sum(n * float(row["mean_nll"]) for n, row in zip(tokens, rows)) / sum(tokens)
        error = math.hypot(*(n * float(row["standard_error"]) for n, row in zip(tokens, rows))) / sum(tokens)
        return [math.exp(value) for value in (mean, mean - Z * error, mean + Z * error)]

    def cell(self, rows):
        value, low, high = self.point(rows)
        return f"{value:.1f} ({low:.1f}-{high:.1f})" if value < 1000 else f"{value:.0f} ({low:.0f}-{high:.0f})"

    def ticks(self, points):
        """Round numbers from just below the lowest to just above the highest, or to four times the lowest."""
        low = min(point[2] for point in points)
        high = min(max(point[3] for point in points), 4 * min(point[1] for point in points))
        width = 10 ** math.floor(math.log10(high))
        while high - low < 4 * width:
            width /= 2
        below = math.floor(low / width) or 1  # the axis has logarithms
        return [i * width for i in range(below, max(math.ceil(high / width), below + 1) + 1)]


class Speed:
    """Tokens a second of the prompt or of what follows it: the median of the repeats, and their range."""

    file, log, bars = "peers", True, "median (least-most)"

    def __init__(self, name, title):
        self.name, self.title = name, title

    def point(self, rows):
        values = [float(row[self.name]) for row in rows]
        return [statistics.median(values), min(values), max(values)]

    def cell(self, rows):
        value, low, high = self.point(rows)
        return f"{value:.4g} ({low:.4g}-{high:.4g})" if len(rows) > 1 else f"{value:.4g}"

    def ticks(self, points):
        """1, 2 and 5 times powers of ten, from just below the lowest to just above the highest."""
        low, high = min(point[2] for point in points), max(point[3] for point in points)
        steps = [m * 10.0**e for e in range(-6, 9) for m in (1, 2, 5)]
        first = max(i for i, step in enumerate(steps) if step <= low)
        last = min(i for i, step in enumerate(steps) if step >= high)
        return steps[first : max(last, first + 1) + 1]


def read(directories, name):
    rows = []
    for directory in directories:
        path = pathlib.Path(directory) / f"{name}.csv"
        if path.is_file():
            with open(path, newline="", encoding="utf-8", errors="replace") as file:
                found = list(csv.DictReader(file))
            # Where all cases failed there is nothing to draw; of a peer that was ended at a length, its faster repeats
            # would be.
            ended = {(row["attn"], row["length"]) for row in found if row.get("ended_after")}
            rows += (row for row in found if "0" not in (row.get("cases"), row.get("samples"))
                     and (row["attn"], row.get("length")) not in ended)
    return rows


def group(rows, alike=()):
    """{name: {length: rows}}, in the rows' order; settings that are `alike` are not told apart."""
    varying = [key for key in SETTINGS if key not in alike and len({row.get(key) for row in rows}) > 1]
    groups = {}
    for row in rows:
        name = ", ".join([row["attn"]] + [row[key] for key in varying if row.get(key)])
        groups.setdefault(name, {}).setdefault(int(row["length"]), []).append(row)
    return groups


def series_of(rows, plot, alike=()):
    """{name: [(length, value, low, high)]}, in the rows' order."""
    return {
        name: [(n, *plot.point(lengths[n])) for n in sorted(lengths)] for name, lengths in group(rows, alike).items()
    }


def table_of(rows, plot, alike=()):
    """Lines of Markdown; a dash where nothing was measured."""
    groups = group(rows, alike)
    lengths = sorted({n for lengths in groups.values() for n in lengths})
    lines = [["method", *map(length_name, lengths)], ["---"] * (1 + len(lengths))]
    for name, found in groups.items():
        lines.append([f"`{name}`"] + [plot.cell(found[n]) if n in found else "-" for n in lengths])
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def colour(i, n):
    """Hues all around at one luminance, 4:1 against white and against near-black alike."""
    red_green_blue = (0, 0, 0)
    for step in range(100):
        red_green_blue = colorsys.hls_to_rgb(i / n, step / 100, 0.75)
        linear = [c / 12.92 if c <= 0.04 else ((c + 0.055) / 1.055) ** 2.4 for c in red_green_blue]
        if 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] >= 0.2:
            break
    return "#" + "".join(f"{round(255 * c):02x}" for c in red_green_blue)


def spread(wanted, distance, top, bottom):
    """Places near the wanted ones, in their order, that keep a distance from each other."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [0.0] * len(wanted)
    last = top - distance
    for i in order:
        last = places[i] = max(wanted[i], last + distance)
    limit = bottom
    for i in reversed(order):  # back up from the bottom
        places[i] = min(places[i], limit)
        limit = places[i] - distance
    return places


def length_name(n):
    return f"{n // 1024}k" if n % 1024 == 0 else str(n)


def draw(plot, series, colours):
    points = [point for line in series.values() for point in line]
    lengths = sorted({point[0] for point in points})
    ticks = plot.ticks(points)
    height = max(HEIGHT, TOP + BOTTOM + LINE * len(series))
    last = {name: line[-1][1] for name, line in series.items()}
    names = {name: name if value <= ticks[-1] else f"{name} ({value:.0f})" for name, value in last.items()}
    beside = 24 + CHARACTER * max(map(len, names.values()))
    right = max(WIDTH - beside, WIDTH / 2)
    inset = 12 + SHIFT * len(series) / 2

    def x(length, i=0.5 * (len(series) - 1)):  # lines beside each other, that none hides another
        share = math.log(length / lengths[0]) / math.log(lengths[-1] / lengths[0]) if len(lengths) > 1 else 0.5
        return LEFT + inset + share * (right - LEFT - 2 * inset) + SHIFT * (i - 0.5 * (len(series) - 1))

    def y(value):
        scale = math.log if plot.log else float
        value = min(max(value, ticks[0]), ticks[-1])
        share = (scale(value) - scale(ticks[0])) / (scale(ticks[-1]) - scale(ticks[0]))
        return height - BOTTOM - share * (height - BOTTOM - TOP)

    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + beside} {height}" role="img">',
        f"<title>{escape(plot.title)}</title><style>{STYLE}</style>",
        f'<text x="{LEFT}" y="20" font-weight="bold">{escape(plot.title)}</text>',
    ]
    for tick in ticks:
        svg.append(f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{right:.1f}"/>')
        svg.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for length in lengths:
        svg.append(f'<text x="{x(length):.1f}" y="{height - 24}" text-anchor="middle">{length_name(length)}</text>')
    svg.append(f'<text x="{(LEFT + right) / 2:.1f}" y="{height - 6}" text-anchor="middle">tokens</text>')
    labels = spread([y(value) for value in last.values()], LINE, TOP, height - BOTTOM)
    for i, (name, line) in enumerate(series.items()):
        path = "M" + "L".join(f"{x(n, i):.1f} {y(value):.1f}" for n, value, _, _ in line)
        bars = "".join(f"M{x(n, i):.1f} {y(low):.1f}V{y(high):.1f}" for n, _, low, high in line)
        end = f"M{x(line[-1][0], i):.1f} {y(line[-1][1]):.1f}L{right + 6:.1f} {labels[i]:.1f}"
        svg.append(f'<g stroke="{colours[name]}" fill="none"><path d="{path}" stroke-width="2"/>')
        svg.append(f'<path d="{bars}" stroke-opacity=".5"/><path d="{end}" stroke-dasharray="1 3"/>')
        dots = [(x(n, i), y(value), value > ticks[-1]) for n, value, _, _ in line] + [(right + 8, labels[i], False)]
        for cx, cy, beyond in dots:
            fill = "none" if beyond else colours[name]
            svg.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="3" fill="{fill}"/>')
        svg.append(f'</g><text x="{right + 15:.1f}" y="{labels[i] + 4:.1f}">{escape(names[name])}</text>')
    return "\n".join(svg) + "\n</svg>\n"


PLOTS = (Accuracy(), Perplexity(), Speed("prefill", "Prompt, tokens a second"),
         Speed("decode", "Answer, tokens a second"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", metavar="DIR", help="what --out of 'longheads eval' named")
    parser.add_argument("--out", required=True, metavar="FOLDER", type=pathlib.Path)
    parser.add_argument(
        "--alike", default="", metavar="SETTING,...", help="draw results that differ in these (compute,kv) as one"
    )
    arguments = parser.parse_args()
    alike = [setting for setting in arguments.alike.split(",") if setting]
    if not set(alike) <= set(SETTINGS):
        parser.error(f"--alike takes some of {', '.join(SETTINGS)}")
    found = [(plot, read(arguments.directories, plot.file)) for plot in PLOTS]
    found = [(plot, rows, series_of(rows, plot, alike)) for plot, rows in found if rows]
    names = sorted({name for _, _, series in found for name in series})
    if not names:
        sys.exit("plot.py: no passkey.csv, ppl.csv or peers.csv with results in " + ", ".join(arguments.directories))
    colours = {name: colour(i, len(names)) for i, name in enumerate(names)}
    arguments.out.mkdir(parents=True, exist_ok=True)
    for plot, rows, series in found:
        (arguments.out / f"{plot.name}.svg").write_text(draw(plot, series, colours), encoding="utf-8")
        print(f"{plot.title} ({plot.bars})\n\n{table_of(rows, plot, alike)}")


if __name__ == "__main__":
    main()
