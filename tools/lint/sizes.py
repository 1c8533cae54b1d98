"""Keeps files small: nothing hand-written above 1000 lines, nothing at all above 1 MB.

Usage: sizes.py [ROOT]   (the repository; default: the one this file lies in)

Looks at the files that git tracks or would track; where ROOT is no git repository (an unpacked archive), at
every file outside build folders. Prints one line for each file that is too large and exits with 1 if there
is any.
"""

import pathlib
import shutil
import subprocess
import sys

MOST_LINES = 1000
MOST_BYTES = 1_000_000

HAND_WRITTEN = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".md"}
HAND_WRITTEN_NAMES = {"CMakeLists.txt", "Makefile", "CMakePresets.json"}
NOT_OURS = ("third_party/", "tests/golden/")  # other people's lines, or a command's


def files_of(root):
    """Paths relative to root, with '/' between parts."""
    if shutil.which("git") and (root / ".git").exists():
        command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        git = subprocess.run(command, capture_output=True, check=False)
        if git.returncode == 0:
            names = git.stdout.decode("utf-8", "surrogateescape").split("\0")
            return sorted({name for name in names if name and (root / name).is_file()})
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in paths if not path.parts[0].startswith((".git", "build")))


def problems_of(root):
    """[(path, message)] of a whole repository."""
    problems = []
    for name in files_of(root):
        path = root / name
        size = path.stat().st_size
        if size > MOST_BYTES:
            problems.append((name, f"{size} bytes, more than {MOST_BYTES}: make it by a command instead"))
            continue
        hand_written = path.suffix in HAND_WRITTEN or path.name in HAND_WRITTEN_NAMES
        if hand_written and not name.startswith(NOT_OURS):
            lines = len(path.read_bytes().splitlines())
            if lines > MOST_LINES:
                problems.append((name, f"{lines} lines, more than {MOST_LINES}: split it by what it does"))
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    problems = problems_of(root)
    for name, message in problems:
        print(f"{name}: {message}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
