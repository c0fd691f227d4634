#!/usr/bin/env python3
"""Every C++ block of a README is, letter for letter, a slice of a file that is compiled:

    // example-begin name
    ...
    // example-end

Indentation common to the slice is not part of it. Every path of the project's that a README names is
there. `--self-test` proves that the checks can fail."""

import pathlib
import re
import sys
import textwrap

import sources

block = re.compile(r"^```(?:cpp|c\+\+)\n(.*?)^```", re.M | re.S)
named = re.compile(r"(?<![\w/.<-])((?:apps|bench|cmake|include|kernels|strategies|test)/[\w./-]*\w/?)")
slice_ = re.compile(r"^[ \t]*// example-begin[^\n]*\n(.*?)^[ \t]*// example-end", re.M | re.S)


def faults(name: str, readme: str, compiled: dict[str, str]) -> list[str]:
    slices = {textwrap.dedent(match[1]).strip()
              for text in compiled.values() for match in slice_.finditer(text)}
    return [f"{name}:{readme.count(chr(10), 0, match.start()) + 1}: no test compiles this block. "
            "Fix: make it a slice of a file under test/"
            for match in block.finditer(readme)
            if textwrap.dedent(match[1]).strip() not in slices]


def missing(name: str, readme: str, there: set[str]) -> list[str]:
    folders = {str(parent) + "/" for path in there for parent in pathlib.PurePath(path).parents}
    prose = block.sub(lambda match: "\n" * match[0].count("\n"), readme)
    placeholder = re.compile(r"/(mine|NAME)[./]|/ROOM/|/NAME")
    return [f"{name}:{prose.count(chr(10), 0, match.start()) + 1}: {match[1]} is not there. Fix: "
            "name what is"
            for match in named.finditer(prose)
            if match[1] not in there and match[1].rstrip("/") + "/" not in folders
            and not placeholder.search(match[1])]


def self_test() -> None:
    test = "int x;\n  // example-begin loop\n  go();\n    on();\n  // example-end\n"
    fence = "```"
    planted = [
        (f"{fence}cpp\ngo();\n  on();\n{fence}\n", ""),
        (f"{fence}cpp\ngo();\n on();\n{fence}\n", "no test compiles"),
        (f"{fence}cpp\nint x;\n{fence}\n", "no test compiles"),
        (f"{fence}sh\nls\n{fence}\n", ""),
    ]
    for readme, sentence in planted:
        sources.expect(faults("README.md", readme, {"test/a.cpp": test}), sentence, readme)
    there = {"test/core/a_test.cpp", "apps/demo"}
    paths = [("`test/core/a_test.cpp`, `test/core/`, test/core, and apps/demo.", ""),
             ("`test/core/b_test.cpp`", "test/core/b_test.cpp is not there"),
             ("`apps/demos`", "apps/demos is not there"),
             ("`build/release/bin/x`, `test/ROOM/NAME_test.cpp`", "")]
    for readme, sentence in paths:
        sources.expect(missing("README.md", readme, there), sentence, readme)
    print(f"{len(planted)} planted blocks and {len(paths)} planted paths judged")


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    else:
        texts = {path: text for path, text in sources.read(*sources.code).items()
                 if path.startswith("test/")}
        there = set(sources.listed())
        found = []
        for name, text in sources.read("README.md").items():
            found += faults(name, text, texts) + missing(name, text, there)
        sources.finish(found)
