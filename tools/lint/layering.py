"""Holds the floors of the house: a folder of src/ includes folders of lower floors only, never a neighbour.

Usage: layering.py [ROOT]   (the repository; default: the one this file lies in)

Prints one line for each include that breaks the rule and exits with 1 if there is any. Tests beside the code
(*_test.cc, *_fuzzer.cc) keep the same rule, and may include tests/ besides.
"""

import pathlib
import re
import sys

FLOORS = [
    ["base"],
    ["tensor", "tokenizer"],
    ["kernels", "rope", "formats", "scoring"],
    ["kv"],
    ["attention"],
    ["model", "trace"],
    ["engine"],
    ["cli", "server", "eval", "bench"],
    ["report"],
    ["program"],  # main: joins the faces
]
FLOOR_OF = {folder: floor for floor, folders in enumerate(FLOORS) for folder in folders}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SOURCES = {".h", ".cc", ".cu", ".cuh"}


def problem_of(folder, is_test, quote, path):
    """Why a file of `folder` may not include `path`; None where it may."""
    first, _, rest = path.partition("/")
    if not rest:
        return None if quote == "<" else "a path begins at src/: write the folder too"
    if first == "tests":
        return None if is_test else "only tests include tests/"
    if first not in FLOOR_OF or first == folder:  # another library's, or one's own
        return None
    if FLOOR_OF[first] < FLOOR_OF[folder]:
        return None
    relation = "a neighbour on" if FLOOR_OF[first] == FLOOR_OF[folder] else "above, on"
    return f"{folder} is on floor {FLOOR_OF[folder]}, {first} is {relation} floor {FLOOR_OF[first]}"


def problems_of(root):
    """[(place, message)] of a whole repository."""
    problems = []
    for file in sorted((root / "src").rglob("*")):
        relative = file.relative_to(root)
        if file.suffix not in SOURCES:
            continue
        folder = relative.parts[1]
        if len(relative.parts) < 3 or folder not in FLOOR_OF:
            problems.append((str(relative), "is in no folder that has a floor (tools/lint/layering.py)"))
            continue
        is_test = file.stem.endswith(("_test", "_fuzzer"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            problem = match and problem_of(folder, is_test, *match.groups())
            if problem:
                problems.append((f"{relative}:{number}", f'includes "{match.group(2)}": {problem}'))
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    if not (root / "src").is_dir():
        sys.exit(f"{root} has no src/ folder: name the repository")
    problems = problems_of(root)
    for place, message in problems:
        print(f"{place}: {message}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
