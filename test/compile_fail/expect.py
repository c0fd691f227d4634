#!/usr/bin/env python3
"""expect.py COMPILER [FLAG...] FILE: the file must fail to compile with the sentence of its first
line, `// expect: ...`, and compile with GOOD defined. Where it is named after a rule, `check_NAME`,
all policies that the rule looks at must be named, too. `--self-test COMPILER` proves that each of
these can fail."""

import pathlib
import re
import subprocess
import sys
import tempfile


def compiled(compiler: list[str], file: str, *more: str) -> tuple[bool, str]:
    ran = subprocess.run([*compiler, "-std=c++20", "-fsyntax-only", *more, file],
                         capture_output=True, text=True)
    return ran.returncode == 0, ran.stderr


def named(rule: str, text: str) -> bool:
    """The compiler says which types the rule was given; true where no header has such a rule."""
    headers = pathlib.Path(__file__).resolve().parents[2] / "include/tutti/core/rules.hpp"
    stated = re.search(rf"^template <([^>]*)>\nstruct check_{rule} ", headers.read_text(), re.M)
    if not stated:
        return True
    given = re.search(rf"instantiation of .*?check_{rule}<(.*)>['’]", text)
    flat = given[1] if given else ""
    while (inner := re.sub(r"<[^<>]*>", "", flat)) != flat:
        flat = inner
    return bool(flat) and flat.count(",") == stated[1].count(",")


def fault(compiler: list[str], file: str) -> str:
    first = pathlib.Path(file).read_text().split("\n", 1)[0]
    sentence = first.removeprefix("// expect:").strip()
    if sentence == first or not sentence:
        return "the first line is no '// expect: sentence'"
    good, text = compiled(compiler, file, "-DGOOD")
    if not good:
        return f"it does not compile with GOOD either:\n{text}"
    good, text = compiled(compiler, file)
    if good:
        return "it compiles"
    # Only what an error says counts: the sentence is in the source as well, which is quoted.
    said = "\n".join(line for line in text.split("\n") if "error:" in line or "note:" in line)
    if sentence not in said:
        return f"it fails for another reason than '{sentence}':\n{text}"
    rule = pathlib.Path(file).stem
    return "" if named(rule, text) else f"it does not name the policies of check_{rule}:\n{text}"


def self_test(compiler: list[str]) -> None:
    body = '#ifndef GOOD\nstatic_assert(false, "tutti: no. Fix: yes.");\n#endif\n'
    planted = [
        ("// expect: tutti: no. Fix: yes.\n" + body, ""),
        ("// expect: tutti: no. Fix: perhaps.\n" + body, "another reason"),
        ("// expect: tutti: no. Fix: yes.\nint x;\n", "it compiles"),
        ("// expect: tutti: no. Fix: yes.\nint x = y;\n" + body, "GOOD either"),
        ("// tutti: no. Fix: yes.\n" + body, "first line"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for text, wanted in planted:
            file = pathlib.Path(folder) / "planted.cpp"
            file.write_text(text)
            found = fault(compiler, str(file))
            if (wanted not in found) if wanted else found:
                sys.exit(f"self-test: wanted '{wanted}', got '{found}', of\n{text}")
    both = "in instantiation of template class 'check_payloads_must_add<a<b, c>, d>' requested"
    for text, wanted in ((both, True), (both.replace(", d", ""), False), ("", False)):
        if named("payloads_must_add", text) != wanted:
            sys.exit(f"self-test: wanted {wanted} of '{text}'")
    print(f"{len(planted)} planted files judged")


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test(sys.argv[2:])
    else:
        found = fault(sys.argv[1:-1], sys.argv[-1])
        sys.exit(f"{sys.argv[-1]}: {found}" if found else 0)
