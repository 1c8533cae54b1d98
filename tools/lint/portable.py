"""Kernels for a processor's wider vectors may run where the program has asked for them; what is outside of them must
run on every processor. A function that is compiled for wide vectors by mistake, or an inline function of a header that
a linker may take for all, ends the program on the others.

Usage: portable.py OBJDUMP LIBRARY

Prints each function of the static LIBRARY that other files can call, or that runs before main, and has instructions
beyond SSE; exits with 1 if there is any. Highway's namespaces for one target (N_AVX2, ...) are kernels.
"""

import re
import subprocess
import sys

SYMBOL = re.compile(r"^[0-9a-f]{16} (.{7}) (\S+)\t[0-9a-f]{16} (?:\.hidden )?(\S+)$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(\S+)>:$")
FILE = re.compile(r"^(\S+):\s+file format")
# AVX and later.
WIDE = re.compile(r"\t(v[a-z]\w*|k(mov|or|and|test|unpck|shift)\w*|ldtilecfg|tile[a-z]\w*|tdp\w*)(\s|$)")


def of_files(text):
    """Each object file's name and lines."""
    name, lines = None, []
    for line in text.splitlines():
        if found := FILE.match(line):
            if name:
                yield name, lines
            name, lines = found[1], []
        else:
            lines.append(line)
    if name:
        yield name, lines


def must_be_portable(lines):
    """The functions of a symbol table (objdump -t) that others call or that run at the start."""
    names = set()
    for line in lines:
        if found := SYMBOL.match(line):
            flags, section, name = found.groups()
            outside = flags[0] in "gu!" or flags[1] == "w" or name.startswith("_GLOBAL__sub_I")
            if outside and "F" in flags and section != "*UND*" and "N_AVX" not in name:
                names.add(name)
    return names


def wide_functions(lines):
    """The functions of a disassembly (objdump -d) with instructions beyond SSE."""
    names, at = set(), None
    for line in lines:
        if found := FUNCTION.match(line):
            at = found[1]
        elif at and WIDE.search(line):
            names.add(at)
    return names


def problems_of(symbols, disassembly):
    portable = {file: must_be_portable(lines) for file, lines in of_files(symbols)}
    return sorted(
        (file, name) for file, lines in of_files(disassembly) for name in wide_functions(lines) & portable.get(file, set())
    )


def main(objdump, library):
    def dump(*options):
        return subprocess.run([objdump, *options, library], capture_output=True, text=True, check=True).stdout

    problems = problems_of(dump("-t"), dump("-d", "--no-show-raw-insn"))
    for file, name in problems:
        print(f"{file}: {name} has instructions that not every x86-64 processor has")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
