#!/usr/bin/env python3
"""Finds what no file of the project may contain: paths outside the project, names without a
meaning, metaphors in place of the field's terms, macros beyond the project's own, and, in the
library, virtual functions and std::function, which would make a training step call through
pointers. A file of more than 500 lines must state why it is one file. `--self-test` proves that
each is found."""

import re
import sys

import sources

# The library's own three macros, and one that an included library reads.
macros = {"TUTTI_HD", "TUTTI_VERSION", "TUTTI_ASSERT", "OMPI_SKIP_MPICXX"}
# The words below are spelt in pieces, because this file is checked, too.
outside = re.compile(r"\.\./" + r"shared\b|/wo" + r"rk/|\b(DESIGN|STYLE|SYSTEMS|FEATURES|PERFORMANCE)"
                     r"(\.md| \d)")
hollow = re.compile(r"\b\w*(?:Man" + r"ager|Hel" + r"per)s?\b|\b\w*(?:_|\b)uti" + r"ls?(?:_|\b)"
                    r"|\b\w*(?:[a-z]Im" + r"pl|_im" + r"pl)\b")
# Metaphors for what the field has terms for, and comments that only refer to another comment.
# "patience sorting" is allowed, because it is a term of the field.
riddles = re.compile(r"\b(?:meet" + r"ing|par" + r"cel|cou" + r"rse)s?\b|(?<!interface )\bca" + r"rds?\b|"
                     r"\bfare" + r"wells?\b|\bstands? for " + r"many\b"
                     r"|(?:\b|_)patien" + r"(?:t|ce)(?:\b(?! sorting)|_)|///? The sa" + r"me"
                     r"(?:[.,:]| (?:of|for|on|with|into|where|between|by)\b)")
indirect = re.compile(r"\bvirtual\b|\bstd::function\b")
# Files that need such calls: a transport that is chosen at run time, a stand-in for a device's
# stream, benchmarked models that are registered by name, and a strategy behind a framework whose
# headers take longer to compile.
may_be_indirect = {"include/tutti/transport/any_transport/interface.hpp", "include/tutti/base/host_stream.hpp",
                   "include/tutti/benchmark.hpp", "include/tutti/adapter/trainer.hpp"}
most_lines = 500
reason = re.compile(r"\b[Oo]ne[\s/#]+file\b")
defines = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
of_others = re.compile(r"CMakePackageConfigHel" r"pers|torch[./](?:csrc/|nn[.])?uti" r"ls|importlib[.]uti" r"l\b")


def faults(texts: dict[str, str]) -> list[str]:
    found = []
    for path, text in texts.items():
        def complain(match: re.Match[str], sentence: str) -> None:
            line = match.string.count("\n", 0, match.start()) + 1
            found.append(f"{path}:{line}: {sentence}")

        for match in outside.finditer(text):
            complain(match, f"'{match[0]}' is outside the project, which stands alone")
        for match in hollow.finditer(of_others.sub("", f"{text}\n{path}")):
            complain(match, f"'{match[0]}' says nothing. Fix: name what it is for")
        for match in riddles.finditer(text):
            complain(match, f"'{match[0]}' is a riddle. Fix: say what it is")
        if re.search(r"\.(hpp|cpp|cu|cuh|py|sh)$", path):
            lines = text.count("\n")
            if lines > most_lines and not reason.search(text[:text.find("\n", 6000)]):
                found.append(f"{path}:{lines}: longer than {most_lines} lines without a reason. "
                             "Fix: cut it, or say in its head why it is one file")
        if re.search(r"\.(hpp|cpp|cu|cuh)(\.in)?$", path):
            for match in defines.finditer(sources.without_comments(text)):
                if match[1] not in macros:
                    complain(match, f"macro {match[1]} is over the budget of three. "
                             "Fix: a value, else a type")
        if path.startswith(("include/", "kernels/", "strategies/")) and path not in may_be_indirect:
            for match in indirect.finditer(sources.without_comments(text)):
                complain(match, f"'{match[0]}' in the library. Fix: a template parameter")
    return found


def self_test() -> None:
    planted = [
        ("README.md", "see ../" + "shared/notes", "outside"),
        ("a.hpp", "// DESIGN" + " 4 says so", "outside"),
        ("a.hpp", "class buffer_Man" + "ager;", "says nothing"),
        ("a.hpp", "struct TestHel" + "per;", "says nothing"),
        ("a.hpp", "namespace uti" + "ls {}", "says nothing"),
        ("base/string_uti" + "l.hpp", "", "says nothing"),
        ("a.hpp", "/// The sa" + "me of another.", "riddle"),
        ("a.hpp", "/// The sa" + "me chunk twice.", ""),
        ("a.hpp", "send_fare" + "well();", ""),
        ("a.hpp", "// a par" + "cel for every peer", "riddle"),
        ("a.hpp", "seconds next_meeting;", ""),
        ("a.hpp", "// the next meet" + "ing", "riddle"),
        ("a.hpp", "// of a network interface ca" + "rd", ""),
        ("a.hpp", "// of a slow ca" + "rd", "riddle"),
        ("a.hpp", "// says fare" + "well", "riddle"),
        ("a.hpp", "seconds longest_patien" + "ce = 1;", "riddle"),
        ("a.hpp", "if (now > patien" + "t_until)", "riddle"),
        ("a.hpp", "// as in patien" + "ce sorting", ""),
        ("a.hpp", "#define TUTTI_LOOP for (;;)", "budget"),
        ("a.hpp", "  # define X", "budget"),
        ("a.hpp", "#define TUTTI_HD", ""),
        ("a.hpp", "// #define X", ""),
        ("a.hpp", "class ring_im" + "pl;", "says nothing"),
        ("a.hpp", "class RingIm" + "pl;", "says nothing"),
        ("include/tutti/a.hpp", "  virtual int rank();", "template parameter"),
        ("kernels/a.hpp", "std::function<void()> f;", "template parameter"),
        ("include/tutti/a.hpp", "// no virtual call", ""),
        ("apps/a.hpp", "std::function<void()> f;", ""),
        ("include/tutti/benchmark.hpp", "  virtual int rank();", ""),
        ("a.hpp", "float utility; int futile, impl_count; simple;", ""),
        ("install.cmake", "include(CMakePackageConfigHel" + "pers)", ""),
        ("a.py", "from torch.uti" + "ls import cpp_extension", ""),
        ("a.py", "from mine.uti" + "ls import everything", "says nothing"),
        ("README.md", "shared memory, by design 4 of them", ""),
        ("a.hpp", "int x;\n" * 551, "longer than"),
        ("a.hpp", "/// All of it. One\n/// file, for it is one.\n" + "int x;\n" * 551, ""),
        ("a.hpp", "int x;\n" * 2000 + "// One file, too late.\n", "longer than"),
        ("a.md", "text\n" * 551, ""),
    ]
    for path, text, sentence in planted:
        sources.expect(faults({path: text}), sentence, f"{text} in {path}")
    print(f"{len(planted)} planted words judged")


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    else:
        sources.finish(faults(sources.read()))
