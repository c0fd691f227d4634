#!/usr/bin/env python3
"""Every C++ block of the README is, letter for letter, a slice of a file that is compiled:

    // example-begin name
    ...
    // example-end

Indentation common to the slice is not part of it. `--self-test` proves that the check can fail."""

import re
import sys
import textwrap

import sources

block = re.compile(r"^```(?:cpp|c\+\+)\n(.*?)^```", re.M | re.S)
slice_ = re.compile(r"^[ \t]*// example-begin[^\n]*\n(.*?)^[ \t]*// example-end", re.M | re.S)


def faults(readme: str, compiled: dict[str, str]) -> list[str]:
    slices = {textwrap.dedent(match[1]).strip()
              for text in compiled.values() for match in slice_.finditer(text)}
    return [f"README.md:{readme.count(chr(10), 0, match.start()) + 1}: no test compiles this block. "
            "Fix: make it a slice of a file under test/"
            for match in block.finditer(readme)
            if textwrap.dedent(match[1]).strip() not in slices]


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
        sources.expect(faults(readme, {"test/a.cpp": test}), sentence, readme)
    print(f"{len(planted)} planted blocks judged")


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    elif not (sources.root / "README.md").exists():
        print("no README.md yet")
        sys.exit(77)
    else:
        texts = {path: text for path, text in sources.read(*sources.code).items()
                 if path.startswith("test/")}
        sources.finish(faults((sources.root / "README.md").read_text(), texts))
