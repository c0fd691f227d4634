#!/usr/bin/env python3
"""Checks that each sentence of a static_assert in the library is expected by a file here."""

import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
literals = r'"(?:[^"\\]|\\.)*"'
asserted = re.compile(rf'static_assert\([^;"]*?,\s*((?:{literals}\s*)+)\)')

expected = [file.read_text().split("\n", 1)[0].removeprefix("// expect:").strip()
            for file in here.glob("*.cpp")]
said = {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match[1])): file.relative_to(here.parents[1])
        for folder in ("include", "kernels", "strategies")
        for file in (here.parents[1] / folder).rglob("*.hpp")
        for match in asserted.finditer(file.read_text())}
untold = [f"{file}: no file of test/compile_fail expects '{sentence}'"
          for sentence, file in said.items() if not any(each in sentence for each in expected)]
if not said:
    untold = ["no sentence found in any header: this check reads them wrongly"]
print("\n".join(untold) or f"{len(said)} sentences, each expected")
sys.exit(1 if untold else 0)
