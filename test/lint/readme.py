#!/usr/bin/env python3
"""Checks the project's Markdown files. Every C++ block must be, letter for letter, a slice of a
file under test/, where it is compiled:

    // example-begin name
    ...
    // example-end

The common indentation of a slice does not count. Every path of the project that the text names, and
every file that it links to, must exist. A folder's README must fit on a screen, and the top
folder's README must take at most five minutes to read. `--self-test` proves that the checks can
fail."""

import pathlib
import posixpath
import re
import sys
import textwrap

import sources

block = re.compile(r"^```(?:cpp|c\+\+)\n(.*?)^```", re.M | re.S)
named = re.compile(r"(?<![\w/.<-])((?:apps|bench|cmake|include|kernels|strategies|test)/[\w./-]*\w/?)")
link = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")
slice_ = re.compile(r"^[ \t]*// example-begin[^\n]*\n(.*?)^[ \t]*// example-end", re.M | re.S)

words_of_five_minutes = 1500
words_of_a_screen = 600
lines_of_a_screen = 60


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
    placeholder = re.compile(r"/(mine|NAME|RULE)[./]|/ROOM/|/NAME")
    return [f"{name}:{prose.count(chr(10), 0, match.start()) + 1}: {match[1]} is not there. Fix: "
            "name what is"
            for match in named.finditer(prose)
            if match[1] not in there and match[1].rstrip("/") + "/" not in folders
            and not placeholder.search(match[1])]


def without_blocks(readme: str) -> str:
    """Returns the text with blocks of code blanked, so that offsets and line numbers stay."""
    of_code = re.compile(r"^```.*?^```|^    [^\n]*", re.M | re.S)
    return of_code.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), readme)


def broken_links(name: str, readme: str, there: set[str]) -> list[str]:
    prose = re.sub(r"`[^`\n]*`", lambda match: " " * len(match[0]), without_blocks(readme))

    def target(match: re.Match[str]) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(name), match[1]))

    return [f"{name}:{readme.count(chr(10), 0, match.start()) + 1}: there is no {target(match)}. "
            "Fix: link to what is"
            for match in link.finditer(prose) if target(match) not in there]


def too_long(name: str, readme: str) -> list[str]:
    """Returns a fault if a README is too long. Blocks of code do not count in the top folder's
    README."""
    folder, _, file = name.rpartition("/")
    if file != "README.md":
        return []
    lines = readme.count("\n")
    text = readme if folder else without_blocks(readme)
    words = sum(1 for word in text.split() if re.search(r"\w", word))
    if folder and (words > words_of_a_screen or lines > lines_of_a_screen):
        limit = f"a screen, {words_of_a_screen} words in {lines_of_a_screen} lines"
    elif words > words_of_five_minutes:
        limit = f"five minutes, {words_of_five_minutes} words beside the code"
    else:
        return []
    return [f"{name}:{lines}: {words} words are longer than {limit}. Fix: move what is looked up "
            "into a file beside it, and link to that"]


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
    links = [("kernels/README.md", "see [loops](loops.md#sums)", ""),
             ("kernels/README.md", "see [loops](table.md)", "there is no kernels/table.md"),
             ("README.md", "see [loops](loops.md)", "there is no loops.md"),
             ("README.md", "see [a page](https://example.org/a)", "")]
    for name, readme, sentence in links:
        sources.expect(broken_links(name, readme, {"kernels/loops.md"}), sentence, readme)
    code = f"\n{fence}cpp\n{test}{fence}\n    make\n"
    lengths = [("README.md", "a " * words_of_five_minutes + code, ""),
               ("README.md", "a " * (words_of_five_minutes + 1), "longer than"),
               ("apps/README.md", "a " * words_of_a_screen, ""),
               ("apps/README.md", "a " * (words_of_a_screen + 1), "longer than"),
               ("apps/README.md", "a\n" * (lines_of_a_screen + 1), "longer than"),
               ("apps/flags.md", "a\n" * 2000, "")]
    for name, readme, sentence in lengths:
        sources.expect(too_long(name, readme), sentence, f"{len(readme)} letters in {name}")
    print(f"{len(planted)} planted blocks, {len(paths)} paths, {len(links)} links and "
          f"{len(lengths)} lengths judged")


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    else:
        texts = {path: text for path, text in sources.read(*sources.code).items()
                 if path.startswith("test/")}
        there = set(sources.listed())
        found = []
        for name, text in sources.read("*.md").items():
            found += faults(name, text, texts) + missing(name, text, there)
            found += broken_links(name, text, there) + too_long(name, text)
        sources.finish(found)
