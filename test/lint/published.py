#!/usr/bin/env python3
"""Checks that every named strategy has a row in the tables of what papers and systems publish about
it, so that no strategy loses a policy or a default unnoticed. Templates are exempt, because a
template has as many names as arguments, and has rows where it is used. `--self-test` proves that
the check can fail."""

import re
import sys

import sources

tables = "test/strategies/published_test.cpp"
# Matches the text from a struct to the next one, if it declares a strategy's name.
named = re.compile(r"^(template[^\n]*\n)?struct (\w+)\b(?:(?!^struct ).)*?^  static constexpr "
                   r"std::string_view name\b", re.M | re.S)


def faults(texts: dict[str, str]) -> list[str]:
    rows = set(re.findall(r"\bstrategies::(\w+)", texts.get(tables, "")))
    found = []
    for header, text in texts.items():
        if not header.startswith("strategies/tutti/strategies/"):
            continue
        for match in named.finditer(text):
            if not match[1] and match[2] not in rows:
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{header}:{line}: {match[2]} is in no table of what is published. "
                             f"Fix: give it a row in {tables}")
    return found


def self_test() -> None:
    name = "  static constexpr std::string_view name"
    planted = [(f"struct One {{\n{name} = \"One\";\n}};\n", ""),
               (f"struct Two : Over<one> {{\n{name} =\n", "Two is in no table"),
               (f"struct One {{\n}};\nstruct Two {{\n{name} = \"Two\";\n", "Two is in no table"),
               (f"struct Two {{\n}};\nstruct One {{\n{name} = \"One\";\n", ""),
               (f"template <class T>\nstruct Two {{\n{name} = \"Two\";\n", ""),
               ("struct Two {\n  using strategy = int;\n};\n", "")]
    for header, sentence in planted:
        sources.expect(faults({tables: "row<strategies::One>{}",
                               "strategies/tutti/strategies/a.hpp": header}), sentence, header)
    print(f"{len(planted)} planted strategies judged")


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    else:
        sources.finish(faults(sources.read(*sources.code)))
