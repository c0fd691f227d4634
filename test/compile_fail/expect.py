#!/usr/bin/env python3
"""expect.py COMPILER [FLAG...] FILE: the file must fail to compile with the sentence of its first
line, `// expect: ...`, and compile with GOOD defined. `--self-test COMPILER` proves that each of
these can fail."""

import pathlib
import subprocess
import sys
import tempfile


def compiled(compiler: list[str], file: str, *more: str) -> tuple[bool, str]:
    ran = subprocess.run([*compiler, "-std=c++20", "-fsyntax-only", *more, file],
                         capture_output=True, text=True)
    return ran.returncode == 0, ran.stderr


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
    return "" if sentence in said else f"it fails for another reason than '{sentence}':\n{text}"


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
    print(f"{len(planted)} planted files judged")


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test(sys.argv[2:])
    else:
        found = fault(sys.argv[1:-1], sys.argv[-1])
        sys.exit(f"{sys.argv[-1]}: {found}" if found else 0)
