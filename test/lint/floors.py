#!/usr/bin/env python3
"""Checks what sources may include.

* The project's folders form layers, called floors. A file may include files of its own folder and
  of lower floors. Exceptions are listed in `doors`.
* Headers of other libraries are included only in the files that `foreign` lists for them.
* Headers that every translation unit which trains reads, because tutti/tutti.hpp includes them, do
  not include standard headers that take long to compile (`slow`).

`--self-test` proves that the check can fail."""

import posixpath
import re
import sys

import sources

# The floor and the folder's name for each prefix of a path. The longest prefix that matches counts.
# Each role's folder is on floor 3.
places = {
    "include/tutti/base/": (0, "base"),
    "kernels/": (1, "kernels"),
    "include/tutti/role/": (2, "role"),
    "include/tutti/core/": (4, "core"),
    "strategies/": (5, "strategies"),
    "include/tutti/": (6, "umbrella"),
    "include/tutti/adapter/": (6, "adapter"),
    "include/tutti/compiled/": (6, "compiled"),
    "apps/": (7, "apps"),
    "bench/": (7, "bench"),
    "test/": (7, "test"),
}
for role in ("fusion", "partition", "schedule", "coordination", "compression", "architecture", "monitor",
             "transport", "collective", "optimizer"):
    places[f"include/tutti/{role}/"] = (3, role)

# Pairs of folders on one floor of which the first may include files of the second: architectures
# are built from collectives, and tests and benchmarks train the apps' networks.
doors = {("architecture", "collective"), ("bench", "apps"), ("test", "apps")}

# Patterns of other libraries' headers, and the paths in which each may be included. Any other
# header must match `standard`: headers of the standard library, of POSIX, of Linux and of
# intrinsics.
foreign = [
    (r"mpi(-ext)?\.h", ["include/tutti/transport/mpi/library.hpp"]),
    (r"nccl\.h", ["include/tutti/transport/nccl.hpp"]),
    (r"cub/.*|thrust/.*", ["include/tutti/base/cuda/loops.cuh", "kernels/tutti/kernels/cuda/", "bench/kernels_cuda.cu"]),
    (r"cuda(_.*)?\.h|cuda/.*", ["include/tutti/base/cuda/", "kernels/tutti/kernels/cuda/", "test/gpu/stand_in/"]),
    (r"Eigen/.*", ["kernels/", "include/tutti/core/plan/", "apps/models/", "test/"]),
    (r"(oneapi/)?dnnl.*", ["apps/models/"]),
    (r"cudnn.*|cublas.*", ["apps/models/", "test/gpu/stand_in/"]),
    (r"boost/.*", ["apps/common/"]),
    (r"nlohmann/.*", ["apps/", "bench/", "test/"]),
    (r"zlib\.h", ["apps/data/", "test/"]),
    (r"zmq.*", ["include/tutti/transport/zmq.hpp"]),
    (r"benchmark/.*", ["bench/", "include/tutti/benchmark.hpp", "test/consumer/"]),
    (r"gtest/.*|gmock/.*", ["test/"]),
    (r"(torch|ATen|c10)/.*", ["include/tutti/adapter/torch", "apps/torch/", "test/torch/"]),
    (r"pybind11/.*", ["apps/torch/"]),
]
standard = re.compile(r"[a-z0-9_]+|.*intrin\.h|(sys|net|netinet|arpa|linux)/.*|cxxabi\.h"
                      r"|(unistd|pthread|sched|fcntl|poll|signal|time|dlfcn|errno|spawn|semaphore)\.h")
# Headers of the standard library that take a hundredth or more of the time in which a translation
# unit's first strategy compiles.
slow = ("cmath", "complex", "filesystem", "format", "functional", "future", "iostream", "map", "random", "ranges",
        "regex", "unordered_map", "unordered_set")
everybodys = "include/tutti/tutti.hpp"
roots = ("include", "kernels", "strategies", "apps", "bench", "test")
includes = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"@]+)"|<([^>@]+)>)', re.M)


def place(path: str) -> tuple[int, str]:
    prefix = max((each for each in places if path.startswith(each)), key=len)
    return places[prefix]


def resolved(path: str, header: str, known: set[str]) -> str | None:
    """Returns the project's file that `header` means in `path`, or None. A header that is in none
    of the include folders, such as one of several variants, is looked up by the end of its path in
    the top folder of `path`."""
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), header))
    for candidate in (beside, *(f"{each}/{header}" for each in roots)):
        if candidate in known:
            return candidate
    room = path.split("/")[0] + "/"
    return next((each for each in sorted(known)
                 if each.startswith(room) and each.endswith("/" + header)), None)


def read_with(path: str, texts: dict[str, str]) -> set[str]:
    """Returns the project's files that a compiler reads for `path`, `path` included."""
    read: set[str] = set()
    ahead = [path]
    while ahead:
        each = ahead.pop()
        if each in texts and each not in read:
            read.add(each)
            ahead += [resolved(each, match[1], set(texts)) or "" for match in includes.finditer(texts[each])
                      if match[1]]
    return read


def faults(texts: dict[str, str]) -> list[str]:
    found = []
    known = set(texts)
    for path in sorted(read_with(everybodys, texts)):
        for match in includes.finditer(texts[path]):
            if match[2] in slow:
                found.append(f"{path}: every unit that trains reads <{match[2]}> for it, which takes the compiler "
                             "long. Fix: include it where a policy needs it, or name the one builtin")
    for path, text in texts.items():
        if not path.startswith(tuple(places)):
            continue
        for match in includes.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            header = match[1] or match[2]
            complaint = (project if match[1] or header.startswith("tutti/") else library)(
                path, header, known)
            if complaint:
                found.append(f"{path}:{line}: {complaint}")
    return found


def project(path: str, header: str, known: set[str]) -> str | None:
    target = resolved(path, header, known)
    if target is None:
        return f'"{header}" is no file of the project. Fix: <> for a library\'s header'
    floor, room = place(path)
    their_floor, their_room = place(target)
    if their_floor > floor:
        return (f'floor {floor} ({room}) looks up to floor {their_floor} ({their_room}): "{header}". '
                "Fix: move what both need to a floor beneath them")
    if their_floor == floor and their_room != room and (room, their_room) not in doors:
        return (f'room {room} looks sideways into {their_room}: "{header}". '
                "Fix: move what both need to a floor beneath them")
    return None


def library(path: str, header: str, _: set[str]) -> str | None:
    for pattern, allowed in foreign:
        if re.fullmatch(pattern, header):
            if path.startswith(tuple(allowed)):
                return None
            return f"<{header}> enters only in {', '.join(allowed)}"
    if standard.fullmatch(header):
        return None
    return f"<{header}> is new here. Fix: name the one place where it enters, in test/lint/floors.py"


def self_test() -> None:
    house = {"include/tutti/base/task.hpp": "", "kernels/tutti/kernels/cast.hpp": "",
             "include/tutti/role/fusion.hpp": "", "include/tutti/fusion/all.hpp": "",
             "include/tutti/collective/ring.hpp": "", "include/tutti/architecture/star.hpp": "",
             "include/tutti/core/engine.hpp": "", "strategies/tutti/strategies/bsp.hpp": "",
             "include/tutti/tutti.hpp": '#include "tutti/core/engine.hpp"',
             "apps/models/mlp.hpp": "", "test/support/law.hpp": ""}
    planted = [
        ("include/tutti/base/task.hpp", '#include "tutti/role/fusion.hpp"', "looks up"),
        ("include/tutti/base/task.hpp", '#include <tutti/role/fusion.hpp>', "looks up"),
        ("kernels/tutti/kernels/cast.hpp", '#include "tutti/collective/ring.hpp"', "looks up"),
        ("include/tutti/fusion/all.hpp", '  #  include "tutti/collective/ring.hpp"', "sideways"),
        ("include/tutti/collective/ring.hpp", '#include "tutti/architecture/star.hpp"', "sideways"),
        ("include/tutti/core/engine.hpp", '#include "tutti/tutti.hpp"', "looks up"),
        ("include/tutti/tutti.hpp", '#include "models/mlp.hpp"', "looks up"),
        ("apps/models/mlp.hpp", '#include "support/law.hpp"', "sideways"),
        ("include/tutti/core/engine.hpp", '#include "tutti/core/gone.hpp"', "no file"),
        ("include/tutti/core/engine.hpp", "#include <mpi.h>", "enters only in"),
        ("apps/models/mlp.hpp", "#include <boost/any.hpp>", "enters only in"),
        ("include/tutti/adapter/torch.hpp", "#include <pybind11/stl.h>", "enters only in"),
        ("include/tutti/adapter/torch.hpp", '#include "tutti/tutti.hpp"', "sideways"),
        ("include/tutti/adapter/torch.hpp", '#include <ATen/ATen.h>\n#include "tutti/core/engine.hpp"', ""),
        ("apps/models/mlp.hpp", "#include <qt/QtGui>", "is new here"),
        ("include/tutti/architecture/star.hpp", '#include "tutti/collective/ring.hpp"', ""),
        ("include/tutti/collective/ring.hpp", '#include "tutti/base/task.hpp"', ""),
        ("test/support/law.hpp", '#include "models/mlp.hpp"\n#include <gtest/gtest.h>', ""),
        ("strategies/tutti/strategies/bsp.hpp", '#include "tutti/core/engine.hpp"', ""),
        ("include/tutti/base/task.hpp", "#include <coroutine>\n#include <unistd.h>", ""),
        ("include/tutti/core/engine.hpp", "#include <cmath>", "takes the compiler long"),
        ("include/tutti/fusion/all.hpp", "#include <cmath>", ""),
    ]
    for path, line, sentence in planted:
        sources.expect(faults({**house, path: line}), sentence, f"{line} in {path}")
    print(f"{len(planted)} planted edges judged")


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        self_test()
    else:
        sources.finish(faults(sources.read(*sources.code)))
