"""Tests that a strategy is compiled once, by one rank of a host, until anything that it is made of
changes. Here a small library is compiled in its place, which says a number from its header, because
that takes only a second."""

import contextlib
import hashlib
import json
import os
import pathlib

import torch
import torch.distributed as dist

import laws
from laws import rank, refused
from tutti_torch import building

scratch = pathlib.Path(os.environ["TUTTI_TEST_SCRATCH"])
header = scratch / "mine.hpp"
building.source = """\
{policies}
extern "C" int says() {{ return {strategy}; }}  // for {arguments}
"""
building.binding = """\
#include <pybind11/pybind11.h>
#include "%s"
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {{ module.attr("says") = inner; }}  // for {queue}
""" % (scratch / "inner.hpp")
building.include_folders = lambda: [str(scratch / "none")]
os.environ["TUTTI_CACHE"] = str(scratch / "cache")


def write(path, text):
    """Writes a file on rank 0, while the others wait."""
    dist.barrier()
    if rank == 0:
        path.write_text(text)
    dist.barrier()


def build():
    """Returns what every rank has asked for before any rank builds it."""
    asked = building.Build("inner + 1", str(header))
    dist.barrier()
    return asked


def same_on_every_rank(path):
    mine = torch.tensor(list(hashlib.sha256(path.encode()).digest()))
    return all(torch.equal(mine, each) for each in laws.of_every_rank(mine))


def folders():
    dist.barrier()
    return [each for each in build().folder.iterdir() if each.is_dir()]


def what_does_not_compile_is_told_once():
    """One rank compiles, and every rank reports the error. A changed header is compiled again."""
    write(header, '#include "inner.hpp"\n')
    write(scratch / "inner.hpp", "constexpr int inner = {};;;  nonsense\n")
    refused("inner + 1 does not compile: ", lambda: build().library())
    assert len(folders()) == 1, f"{folders()}, and one rank builds"
    write(scratch / "inner.hpp",
          'constexpr int inner = 0; static_assert(false, "tutti: it cannot be. Fix: another");\n')
    refused("tutti: it cannot be. Fix: another", lambda: build().library())


def what_does_not_load_is_told_once():
    before = len(folders())
    write(scratch / "inner.hpp", "extern const int inner;\n")
    said = refused("inner + 1 compiles but does not load: ", lambda: build().library())
    assert "undefined symbol: inner" in said, said
    assert len(folders()) == before + 1, f"{folders()}, and one rank builds"


def one_rank_builds():
    write(scratch / "inner.hpp", "constexpr int inner = 1;\n")
    library = build().library()
    assert library.says() == 2
    assert same_on_every_rank(library._name)
    assert folders() == [pathlib.Path(library._name).parent]


def an_edit_of_any_header_builds_again():
    """The edited header is one that the user's header includes. Its length and its time of
    modification stay."""
    inner = scratch / "inner.hpp"
    before = build().library()._name
    assert build().library()._name == before
    times = inner.stat()
    write(inner, "constexpr int inner = 7;\n")
    os.utime(inner, ns=(times.st_atime_ns, times.st_mtime_ns))
    library = build().library()
    assert library.says() == 8 and library._name != before
    assert same_on_every_rank(library._name)
    assert folders() == [pathlib.Path(library._name).parent]
    assert build().library()._name == library._name


def a_header_may_be_anywhere():
    """A path may hold blanks, for example."""
    spaced = scratch / "a folder" / "my #header $.hpp"
    if rank == 0:
        spaced.parent.mkdir()
    write(spaced, "constexpr int mine = 1;\n")
    assert building.Build("mine", str(spaced)).library().says() == 1
    write(spaced, "constexpr int mine = 2;\n")
    assert building.Build("mine", str(spaced)).library().says() == 2


def a_binding_is_built_again_for_other_headers():
    """The compiler's list holds headers of the system, too."""
    def bound():
        asked = building.Binding()
        dist.barrier()
        return asked

    write(scratch / "inner.hpp", "constexpr int inner = 3;\n")
    assert bound().module().says == 3
    listed = json.loads((bound().folder / "built.json").read_text())["headers"]
    assert any(each.endswith("pybind11/pybind11.h") for each in listed), listed
    write(scratch / "inner.hpp", "constexpr int inner = 4;\n")
    assert bound().module().says == 4


def two_versions_of_a_type_are_apart():
    """A process that has loaded a type and then loads another version of it runs the new one."""
    said = []
    for length in (3, 5):
        write(header, "struct mine { static int of() { static int one = %d; return one; } };\n" % length)
        asked = building.Build("mine::of()", str(header))
        dist.barrier()
        said.append(asked.library().says())
    assert said == [3, 5], said
    write(header, '#include "inner.hpp"\n')


def what_is_built_is_what_was_asked_for():
    """Each combination of text, compiler, flags and torch's layout of strings has a folder of its
    own, which is found again. Another version of torch needs only another binding to torch."""
    compiler = scratch / f"compiler.{rank}"
    compiler.write_text("#!/bin/sh\necho another\n")
    compiler.chmod(0o755)

    def name(*arguments, **environment):
        before = dict(os.environ)
        os.environ.update(environment)
        with contextlib.ExitStack() as after:
            after.callback(lambda: (os.environ.clear(), os.environ.update(before)))
            return building.Build(*(arguments or ("inner + 1", str(header)))).folder

    known = [name(), name("inner + 2", str(header)), name("inner + 1", str(scratch / "inner.hpp")),
             name("inner + 1", None), name("inner + 1", str(header), "optimizer::sgd"),
             name(CXXFLAGS="-O1"), name(CXX=str(compiler)), name(TUTTI_MPICXX=str(compiler))]
    layout = torch._C._GLIBCXX_USE_CXX11_ABI
    torch._C._GLIBCXX_USE_CXX11_ABI = not layout
    known.append(name())
    torch._C._GLIBCXX_USE_CXX11_ABI = layout
    version, bound = torch.__version__, building.Binding().folder
    torch.__version__ = "0.1"
    assert name() == known[0]
    known += [bound, building.Binding().folder]
    torch.__version__ = version
    compiler.write_text("#!/bin/sh\necho one more\n")
    known += [name(CXX=str(compiler)), name(TUTTI_MPICXX=str(compiler))]
    compiler.write_text("#!/bin/sh\ntest $1 = --showme:link || echo one more\n")
    known.append(name(TUTTI_MPICXX=str(compiler)))
    assert len(set(known)) == len(known), known
    assert name() == known[0]


def a_compiler_that_says_nothing():
    known = os.environ["CXX"]
    compiler = scratch / f"silent.{rank}"
    compiler.write_text('#!/bin/sh\ncase "$*" in *version*|-v) echo gcc version 12 ;; *) exit 1 ;; esac\n')
    compiler.chmod(0o755)
    os.environ["CXX"] = str(compiler)
    refused(f"Fix: let {compiler} be a C++20 compiler", lambda: build().library())
    os.environ["CXX"] = known


laws.run([what_does_not_compile_is_told_once, what_does_not_load_is_told_once, one_rank_builds,
          an_edit_of_any_header_builds_again, a_header_may_be_anywhere,
          a_binding_is_built_again_for_other_headers, two_versions_of_a_type_are_apart,
          what_is_built_is_what_was_asked_for,
          a_compiler_that_says_nothing])
