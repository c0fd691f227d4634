#!/usr/bin/env python3
"""each_alone.py COMPILER [FLAG...] -- HEADER...: every header must compile alone.

One translation unit can check two headers of which the second includes the first: nothing stands
before the first header, and before the second one only what it includes itself. So each unit is a
chain of such headers. The fewest chains that contain all headers are about half as many as there
are headers. Headers that many others include are precompiled, and included first in the units of
those others. `--self-test COMPILER` proves that the check can fail."""

import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile


def included(header: pathlib.Path, roots: list[pathlib.Path]) -> list[pathlib.Path]:
    """Returns the project's headers that `header` includes before any other code, and so under no
    condition."""
    found = []
    for line in header.read_text().split("\n"):
        name = re.match(r'#include "(.*)"', line)
        if name:
            found += [root / name[1] for root in roots if (root / name[1]).is_file()][:1]
        elif line.strip() and not line.startswith(("//", "#include", "#pragma once")):
            break
    return found


def brought(headers: list[pathlib.Path], roots: list[pathlib.Path]) -> dict[pathlib.Path, set[pathlib.Path]]:
    """Returns for each header all headers that it includes, directly or through other headers."""
    all_of: dict[pathlib.Path, set[pathlib.Path]] = {}

    def visit(header: pathlib.Path) -> set[pathlib.Path]:
        if header not in all_of:
            all_of[header] = set()
            for each in included(header, roots):
                all_of[header] |= {each} | visit(each)
        return all_of[header]

    for header in headers:
        visit(header)
    return all_of


def by_precompiled(headers: list[pathlib.Path], all_of: dict[pathlib.Path, set[pathlib.Path]],
                   most: int) -> dict[pathlib.Path | None, list[pathlib.Path]]:
    """Groups headers by the header that is precompiled for them, or None for the rest. Chooses at
    most `most` headers to precompile, one after the other: each time the one that, with all that it
    includes, saves the remaining headers that include it the most."""
    found: dict[pathlib.Path | None, list[pathlib.Path]] = {}
    rest = headers
    for _ in range(most):
        users = {each: [header for header in rest if each in all_of[header]] for each in headers}
        best = max(headers, key=lambda each: len(users[each]) * (1 + len(all_of[each])))
        if not users[best]:
            break
        found[best] = users[best]
        rest = [header for header in rest if header not in users[best]]
    return {**found, None: rest}


def chains(headers: list[pathlib.Path],
           all_of: dict[pathlib.Path, set[pathlib.Path]]) -> list[list[pathlib.Path]]:
    """Divides headers into as few lists as possible in which each header includes its predecessor.
    That is a matching of headers with predecessors that no augmenting path enlarges."""
    candidates = {header: [each for each in headers if each in all_of[header]] for header in headers}
    successor: dict[pathlib.Path, pathlib.Path] = {}

    def matched(header: pathlib.Path, seen: set[pathlib.Path]) -> bool:
        for before in candidates[header]:
            if before not in seen:
                seen.add(before)
                if before not in successor or matched(successor[before], seen):
                    successor[before] = header
                    return True
        return False

    firsts = [header for header in headers if not matched(header, set())]
    found = []
    for header in firsts:
        found.append([header])
        while found[-1][-1] in successor:
            found[-1].append(successor[found[-1][-1]])
    return found


def faults(compiler: list[str], headers: list[pathlib.Path]) -> tuple[list[str], int]:
    """Returns the compiler's messages about headers that do not compile alone, and the number of
    units."""
    roots = [pathlib.Path(flag[2:]) for flag in compiler if flag.startswith("-I")]
    all_of = brought(headers, roots)
    groups = by_precompiled(headers, all_of, most=5)
    units = [(first, unit) for first in groups for unit in chains(groups[first], all_of)]

    def text_of(unit: list[pathlib.Path]) -> str:
        return "".join(f'#include "{header}"\n' for header in unit)

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as two:
        precompiled = {first: pathlib.Path(folder) / f"{at}.hpp"
                       for at, first in enumerate(groups) if first}

        # If this fails, the units include the header's text instead, and report its errors.
        def precompile(first: pathlib.Path) -> None:
            precompiled[first].write_text(text_of([first]))
            subprocess.run([*compiler, "-std=c++20", "-x", "c++-header", precompiled[first], "-o",
                            f"{precompiled[first]}.gch"], capture_output=True, check=False)

        def said(first: pathlib.Path | None, unit: list[pathlib.Path]) -> str:
            before = ["-include", precompiled[first]] if first else []
            ran = subprocess.run([*compiler, "-std=c++20", *before, "-S", "-o", "/dev/null", "-x",
                                  "c++", "-"], input=text_of(unit), capture_output=True, text=True)
            return "" if ran.returncode == 0 else f"{', '.join(map(str, unit))}:\n{ran.stderr}"

        list(two.map(precompile, precompiled))
        return [text for text in two.map(said, *zip(*units)) if text], len(units)


def self_test(compiler: list[str]) -> None:
    planted = {
        "alone.hpp": "#include <vector>\nstruct alone { std::vector<int> of; };\n",
        "brings.hpp": '#include "alone.hpp"\nstruct brings : alone {};\n',
        "borrows.hpp": "struct borrows { std::vector<int> of; };\n",
        "borrows_ours.hpp": "#include <string>\nstruct borrows_ours : alone {};\n",
        "borrows_more.hpp": '#include "brings.hpp"\nstruct borrows_more : brings { std::map<int, int> by; };\n',
        "sometimes.hpp": '#if 0\n#include "alone.hpp"\n#endif\nstruct sometimes : alone {};\n',
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in planted.items():
            (root / name).write_text("#pragma once\n" + text)
        found, units = faults([*compiler, f"-I{root}"], [root / name for name in planted])
        red = [name for name in planted if any(f"{name}:" in text for text in found)]
        wanted = [name for name in planted if re.match("borrows|sometimes", name)]
        if red != wanted or units != 5:
            sys.exit(f"self-test: wanted {wanted} of 5 units, got {red} of {units}: {found}")
    print(f"{len(planted)} planted headers judged")


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test(sys.argv[2:])
    else:
        at = sys.argv.index("--")
        headers = [pathlib.Path(path) for path in sys.argv[at + 1:]]
        found, units = faults(sys.argv[1:at], headers)
        if found or not headers:
            sys.exit("\n".join(found) or "no header to compile")
        print(f"{len(headers)} headers, each alone, in {units} units")
