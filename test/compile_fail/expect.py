#!/usr/bin/env python3
"""expect.py COMPILER [FLAG...] -- FILE...: each file must fail to compile with the sentence of its
first line, `// expect: ...`, and must compile with GOOD defined. If a file is named NAME after a
rule, `check_NAME`, the compiler's message must also name every policy that the rule was given. All
files are compiled as one translation unit, so that headers are read only once. An error counts as a
file's if a line of that file led to it. `--self-test COMPILER` proves that each check can fail."""

import pathlib
import re
import subprocess
import sys
import tempfile


def compiled(compiler: list[str], files: list[str], *more: str) -> tuple[bool, str]:
    """Compiles all files as one translation unit, with the flags `more`. Returns whether it
    compiles, and the compiler's messages. The unit includes all headers first. Then it includes
    each file in a namespace of the file's own, unless the file adds to namespace tutti."""
    texts = {file: pathlib.Path(file).read_text() for file in files}
    unit = [line for text in texts.values() for line in re.findall(r"^#include .*", text, re.M)]
    for file, text in texts.items():
        own = f'#include "{file}"'
        if not re.search(r"^namespace tutti\b", text, re.M):
            own = f"namespace {pathlib.Path(file).stem} {{\n{own}\n}}"
        unit.append(own)
    if "clang" in compiler[0]:
        more = (*more, "-ferror-limit=0")
    ran = subprocess.run([*compiler, "-std=c++20", "-fsyntax-only", *more, "-x", "c++", "-"],
                         input="\n".join(unit) + "\n", capture_output=True, text=True)
    return ran.returncode == 0, ran.stderr


def errors(text: str) -> list[str]:
    """Returns the compiler's messages, one for each error or warning, with the lines that tell what
    led to it. g++ prints those lines before the error, and clang after it."""
    found, leads = [], ""
    for line in text.split("\n"):
        if re.match(r"In file included from|\s+from |.*: (In|At) |.*:   (required|recursively|\[)", line):
            leads += line + "\n"
        elif re.match(r"\S+ (fatal )?(error|warning): ", line):
            found.append(leads + line + "\n")
            leads = ""
        elif found:
            found[-1] += leads + line + "\n"
            leads = ""
    return found


def named(rule: str, text: str) -> bool:
    """Returns whether the compiler's message `text` names all types that the rule was given.
    Returns true if there is no such rule."""
    headers = pathlib.Path(__file__).resolve().parents[2] / "include/tutti/core/rules.hpp"
    stated = re.search(rf"^template <([^>]*)>\nstruct check_{rule} ", headers.read_text(), re.M)
    if not stated:
        return True
    given = re.search(rf"instantiation of .*?check_{rule}<(.*)>['’]", text)
    flat = given[1] if given else ""
    while (inner := re.sub(r"<[^<>]*>", "", flat)) != flat:
        flat = inner
    return bool(flat) and flat.count(",") == stated[1].count(",")


def fault(file: str, said: list[str]) -> str:
    first = pathlib.Path(file).read_text().split("\n", 1)[0]
    sentence = first.removeprefix("// expect:").strip()
    if sentence == first or not sentence:
        return "the first line is no '// expect: sentence'"
    its = [text for text in said if "error: " in text and re.search(rf"^{re.escape(file)}:\d", text, re.M)]
    if not its:
        return "it compiles"
    # Only lines of errors and notes count, because the compiler also quotes the source, which has
    # the sentence in any case.
    expected = [text for text in its if any(sentence in line for line in text.split("\n")
                                            if "error:" in line or "note:" in line)]
    if not expected:
        return f"it fails for another reason than '{sentence}':\n{''.join(its)}"
    rule = pathlib.Path(file).stem
    text = "".join(expected)
    return "" if named(rule, text) else f"it does not name the policies of check_{rule}:\n{text}"


def faults(compiler: list[str], files: list[str]) -> list[str]:
    good, text = compiled(compiler, files, "-DGOOD")
    if not good:
        return [f"not all compile with GOOD:\n{text}"]
    said = errors(compiled(compiler, files)[1])
    return [f"{file}: {found}" for file in files if (found := fault(file, said))]


def self_test(compiler: list[str]) -> None:
    body = '#ifndef GOOD\nstatic_assert(false, "tutti: no. Fix: yes.");\n#endif\n'
    inside = ('#include "rules.hpp"\n#ifdef GOOD\nusing given = bool;\n#else\nusing given = {};\n#endif\n'
              "struct mine {{}};\ncheck_payloads_must_add<given, mine> of;\n")
    planted = {
        "fails": ("// expect: tutti: no. Fix: yes.\n" + body, ""),
        "fails_otherwise": ("// expect: tutti: no. Fix: perhaps.\n" + body, "another reason"),
        "compiles": ("// expect: tutti: no. Fix: yes.\n#include <string>\nstd::string x;\n", "it compiles"),
        "expects_nothing": ("// tutti: no. Fix: yes.\n" + body, "first line"),
        "in_a_header": ("// expect: tutti: int. Fix: bool.\n" + inside.format("int"), ""),
        "in_a_header_otherwise": ("// expect: tutti: int. Fix: bool.\n" + inside.format("char"), "another reason"),
        "payloads_must_add": ("// expect: tutti: int. Fix: bool.\n" + inside.format("int"), ""),
        "payloads_must_merge": ("// expect: tutti: int. Fix: bool.\n" + inside.format("int"), "not name"),
    }
    header = ('#pragma once\ntemplate <class T> constexpr bool an_int = false;\n'
              "template <> constexpr bool an_int<int> = true;\n"
              "template <class T> constexpr bool a_char = false;\n"
              "template <> constexpr bool a_char<char> = true;\n"
              "template <class T, class> struct check_payloads_must_add {\n"
              '  static_assert(!an_int<T>, "tutti: int. Fix: bool.");\n'
              '  static_assert(!a_char<T>, "tutti: char. Fix: bool.");\n};\n')
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "rules.hpp").write_text(header)
        files = {name: pathlib.Path(folder) / f"{name}.cpp" for name in planted}
        for name, (text, _) in planted.items():
            files[name].write_text(text)
        compiler = [*compiler, f"-I{folder}"]
        found = faults(compiler, [str(file) for file in files.values()])
        for name, (text, wanted) in planted.items():
            its = "".join(each for each in found if each.startswith(f"{files[name]}:"))
            if (wanted not in its) if wanted else its:
                sys.exit(f"self-test: wanted '{wanted}', got '{its}', of\n{text}")
        files["fails"].write_text("int x = y;\n" + body)
        found = faults(compiler, [str(file) for file in files.values()])
        if len(found) != 1 or "compile with GOOD" not in found[0] or "int x = y;" not in found[0]:
            sys.exit(f"self-test: wanted 'compile with GOOD', got {found}")
    both = "in instantiation of template class 'check_payloads_must_add<a<b, c>, d>' requested"
    for text, wanted in ((both, True), (both.replace(", d", ""), False), ("", False)):
        if named("payloads_must_add", text) != wanted:
            sys.exit(f"self-test: wanted {wanted} of '{text}'")
    print(f"{len(planted) + 1} planted files judged")


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test(sys.argv[2:])
    else:
        at = sys.argv.index("--")
        files = sys.argv[at + 1:]
        found = faults(sys.argv[1:at], files)
        if found or not files:
            sys.exit("\n".join(found) or "no file to compile")
        print(f"{len(files)} files, each refused by its sentence")
