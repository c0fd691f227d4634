"""Compiles the binding to torch, once, and each strategy, and keeps the results in a cache."""

import concurrent.futures
import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from typing import NoReturn

import torch

from .toolkit import Toolkit

source = """\
#include <tutti/tutti.hpp>
#include <tutti/strategies.hpp>
{policies}
#include <tutti_torch/{place}.hpp>

using namespace tutti;
using Trained = std::type_identity_t<{strategy}>;
extern "C" [[gnu::visibility("default")]] tutti_torch::trainer<tutti_torch::{place}::queue>*
tutti_torch_trainer(const tutti_torch::request& asked) {{
  return new tutti_torch::trainer_of<tutti_torch::{place}, {arguments}>(asked);
}}
"""
binding = """\
#include <{header}>
#include <tutti_torch/binding.hpp>

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {{
  tutti_torch::bind<{queue}>(module);
}}
"""
places = {"on_host": {"header": "tutti/adapter/torch_memory.hpp", "queue": "tutti::inline_queue"},
          "on_cuda": {"header": "tutti/adapter/torch_cuda.hpp", "queue": "tutti::cuda::stream"}}

roles = ("architecture", "collective", "compression", "coordination", "fusion", "partition",
         "schedule")


def include_folders() -> list[str]:
    """Returns the folders of tutti's headers, from the first folder above this package that has
    them, in its sources or installed."""
    package = pathlib.Path(__file__).resolve().parent
    for folder in package.parents:
        if (folder / "include/tutti/tutti.hpp").exists():
            roots = [folder / each for each in ("include", "kernels", "strategies")]
            return [str(each) for each in roots if each.is_dir()] + [str(package.parent)]
    raise RuntimeError(f"no include/tutti/tutti.hpp in any folder above {package}. "
                       "Fix: use the package where tutti is installed")


def answer_of(*command: str) -> str:
    """Returns what a program prints. Raises RuntimeError if it fails."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as reason:
        raise RuntimeError(f"{shlex.join(command)} failed, but the extension needs it. "
                           "Fix: apt-get install g++ ninja-build libopenmpi-dev") from reason


def digest(path: str) -> str | None:
    """Returns a hash of the file's contents, or None if it cannot be read."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    return None


def changed_since(path: str, then: float) -> bool:
    with contextlib.suppress(OSError):
        return os.path.getmtime(path) > then
    return True


def headers_in(rule: pathlib.Path) -> list[str]:
    """Returns the files that a compiler has read, from the rule for make that it has written."""
    files = re.split(r"(?<!\\)\s+", rule.read_text().replace("\\\n", " ").split(": ", 1)[1].strip())
    return [re.sub(r"\\([ #])", r"\1", each).replace("$$", "$") for each in files]


def sentence_of(what: str, output: str, fix: str) -> str:
    """Returns a compiler's output as one sentence: a static assertion of tutti's, or the first
    error and how it can be mended."""
    for pattern in (r"error: static assertion failed(?:: |.*\")(tutti: [^\n\"]*)",
                    r"(?:fatal )?error: ([^\n]*)"):
        if found := re.search(pattern, output):
            return found[1] if found[1].startswith("tutti: ") else (
                f"{what} does not compile: {found[1]}. Fix: {fix}")
    return (f"{what} does not compile: {' '.join(output.split())[-300:]}. Fix: let "
            f"{os.environ.get('CXX', 'c++')} be a C++20 compiler with enough memory and disk")


class Kept:
    """A compiler's product in the cache. Its folder is named by a key, and holds the last product,
    the hashes of all headers that went into it, and a lock, which the system releases if its
    process dies."""

    def __init__(self, *key):
        self.asked_for = time.time()
        self.name = "tutti_" + hashlib.sha256(json.dumps(key).encode()).hexdigest()[:20]
        cache = os.environ.get("TUTTI_CACHE") or os.path.expanduser("~/.cache/tutti")
        self.folder = pathlib.Path(cache) / self.name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "lock").touch()
        except OSError as reason:
            raise RuntimeError(f"compiled strategies cannot be kept in {cache}: {reason.strerror}. "
                               "Fix: TUTTI_CACHE=a folder that can be written") from None

    def used_by(self, use):
        """Returns `use(path)` for the product, which is built first if necessary. One rank of a
        host builds, and the others wait."""
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.built()
            if path is None:
                self.refuse_again()
                path = self.build()
            return use(path)

    def built(self) -> str | None:
        """Returns the path of the last product, if it is still there, which it is not in a cache
        that was moved, and if none of its headers has changed since."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            known = json.loads((self.folder / "built.json").read_text())
            if os.path.exists(known["file"]) and all(
                    its and digest(path) == its for path, its in known["headers"].items()):
                return known["file"]
        return None

    def build(self) -> str:
        """Builds in a new folder, which replaces the earlier ones, and returns the product's
        path."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        began = time.time()
        file, headers = self.compile(folder)
        # Which version was read of a header that has changed meanwhile is not known. The source, in
        # `folder`, follows from the key.
        read = {each: None if changed_since(each, began) else digest(each)
                for each in headers if pathlib.Path(each).parent != folder}
        (folder / "built.json").write_text(json.dumps({"file": file, "headers": read}))
        (folder / "built.json").replace(self.folder / "built.json")
        for other in self.folder.iterdir():
            if other.is_dir() and other != folder:
                shutil.rmtree(other)  # processes that have loaded it keep it
        return file

    def refuse_again(self) -> None:
        """Raises the error of another rank's build that has failed since this one was asked for."""
        refusal = self.folder / "refused"
        if refusal.exists() and refusal.stat().st_mtime >= self.asked_for:
            raise RuntimeError(refusal.read_text())

    def refuse(self, sentence: str) -> NoReturn:
        (self.folder / "refused").write_text(sentence)
        raise RuntimeError(sentence) from None


class Compiler:
    """The compiler of C++, and its flags for code that runs beside this torch."""

    def __init__(self, toolkit: Toolkit | None):
        mpi = os.environ.get("TUTTI_MPICXX", "mpicxx")
        self.folders = include_folders()
        self.includes = [f"-I{each}" for each in self.folders]
        self.command = shlex.split(os.environ.get("CXX", "c++"))
        version = answer_of(*self.command, "--version")
        self.is_gnu = "Free Software" in version
        # g++ spends a tenth of a strategy on collecting garbage unless its heap may grow to this
        # many KiB.
        grows = ["--param=ggc-min-heapsize=1000000"] if self.is_gnu else []
        self.flags = [*grows, "-std=c++20", "-O3", "-ffp-contract=off", "-fno-math-errno",
                      "-DOMPI_SKIP_MPICXX",
                      *shlex.split(answer_of(mpi, "--showme:compile")),
                      *(toolkit.flags if toolkit else ()),
                      *shlex.split(os.environ.get("CXXFLAGS", ""))]
        self.links = [*shlex.split(answer_of(mpi, "--showme:link")),
                      *(toolkit.links if toolkit else ())]
        self.abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
        self.key = (self.folders, self.command, version, self.flags, self.links, self.abi)


class Kernels(Kept):
    """tutti's kernels for the GPUs of this host: one object file, which all strategies share."""

    def __init__(self, toolkit: Toolkit, folders: list[str]):
        self.source = next(str(path) for path in (pathlib.Path(each) / "tutti/kernels/cuda/library.cu"
                                                  for each in folders) if path.exists())
        self.command = [toolkit.nvcc, *toolkit.kernel_flags, *(f"-I{each}" for each in folders),
                        "-c", self.source]
        super().__init__(self.command, toolkit.release)

    def compile(self, folder: pathlib.Path) -> tuple[str, list[str]]:
        made, told = str(folder / "kernels.o"), folder / "kernels.d"
        done = subprocess.run([*self.command, "-o", made, "-MD", "-MF", str(told)],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = " ".join((done.stderr + done.stdout).split())[:300]
            self.refuse(f"tutti's kernels do not compile: {said}. Fix: install CUDA 13's toolkit, and "
                        "set NVCC_CCBIN to a host compiler that it supports")
        return made, headers_in(told)


class Binding(Kept):
    """The Python module of torch models, which works with every strategy. torch's extension builder
    builds it."""

    def __init__(self, place: str = "on_host"):
        toolkit = Toolkit() if place == "on_cuda" else None
        self.text = binding.format(**places[place])
        self.compiler = Compiler(toolkit)
        self.links = [*self.compiler.links, *(toolkit.torch_links if toolkit else ())]
        super().__init__(self.text, self.compiler.key, self.links, torch.__version__, sys.version)

    def module(self):
        """Returns the module, loaded into this process."""
        return self.used_by(self.loaded)

    @staticmethod
    def loaded(path: str):
        spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def expect_ninja(self) -> None:
        """Raises RuntimeError if ninja is missing and the module is still to be built."""
        if self.built() is None and shutil.which("ninja") is None:
            raise RuntimeError("torch builds extensions with ninja, which is not installed. "
                               "Fix: apt-get install ninja-build, or pip install ninja")

    def compile(self, folder: pathlib.Path) -> tuple[str, list[str]]:
        try:
            from torch.utils import cpp_extension  # imported late: it looks for CUDA and prints
        except ImportError as reason:
            self.refuse(f"torch's extension builder does not load: {reason}. "
                        "Fix: apt-get install python3-setuptools, or pip install setuptools")
        written, told = folder / "module.cpp", folder / "module.d"
        written.write_text(self.text)
        try:
            module = cpp_extension.load(  # one name may be loaded only once in a process
                f"{self.name}_{folder.name}", [str(written)],
                extra_cflags=self.compiler.flags, extra_ldflags=self.links,
                extra_include_paths=self.compiler.folders, build_directory=str(folder),
                with_cuda=False).__file__
        except RuntimeError as reason:
            self.refuse(sentence_of("tutti's binding to torch", str(reason),
                                    "let CXX be a compiler that this torch supports, and install "
                                    "Python's headers"))
        except ImportError as reason:
            self.refuse(f"tutti's binding to torch compiles but does not load: {reason}. "
                        "Fix: let CXX be the compiler that this torch was built with")
        # Not asked of ninja, which is not told of headers in a system's folders.
        answer_of(*self.compiler.command, *self.compiler.flags, *self.compiler.includes,
                  *(f"-I{each}" for each in cpp_extension.include_paths()),
                  f"-I{sysconfig.get_paths()['include']}", "-M", "-MF", str(told), str(written))
        return module, headers_in(told)


class Build(Kept):
    """A strategy's library, for one optimizer, one place of tensors and one compiler. It is
    compiled without torch's headers."""

    def __init__(self, strategy: str, header: str | None, optimizer: str | None = None,
                 place: str = "on_host"):
        self.strategy = strategy
        self.toolkit = Toolkit() if place == "on_cuda" else None
        self.compiler = Compiler(self.toolkit)
        headers = pathlib.Path(self.compiler.folders[0])
        policies = [f"#include <{each.relative_to(headers)}>" for role in roles
                    for each in sorted(headers.glob(f"tutti/{role}/*.hpp"))]
        if header:
            if not os.path.isfile(header):
                raise RuntimeError(f"there is no file {header} to declare {strategy}. "
                                   "Fix: header=the path of a C++ file")
            policies.append(f'#include "{os.path.abspath(header)}"')
        self.text = source.format(policies="\n".join(policies), strategy=strategy, place=place,
                                  arguments=", ".join(filter(None, ("Trained", optimizer))))
        super().__init__(self.text, self.compiler.key,
                         self.toolkit.kernel_flags if self.toolkit else [])

    def library(self) -> ctypes.CDLL:
        """Returns the library, loaded into this process."""
        return self.used_by(ctypes.CDLL)

    def compile(self, folder: pathlib.Path) -> tuple[str, list[str]]:
        if self.toolkit is None:
            return self.compile_with(folder, [])
        kernels = Kernels(self.toolkit, self.compiler.folders)
        try:
            kernels.used_by(lambda path: shutil.copy(path, folder))
        except RuntimeError as reason:
            self.refuse(str(reason))
        file, headers = self.compile_with(folder, [str(folder / "kernels.o")])
        return file, [*headers, *json.loads((kernels.folder / "built.json").read_text())["headers"]]

    def compile_with(self, folder: pathlib.Path, objects: list[str]) -> tuple[str, list[str]]:
        written, made, told = (str(folder / f"{self.name}.{each}") for each in ("cpp", "so", "d"))
        pathlib.Path(written).write_text(self.text)
        # Two versions of a type may be loaded into one process, and must not share its functions.
        apart = ["-fno-gnu-unique"] if self.compiler.is_gnu else []
        done = subprocess.run(
            [*self.compiler.command, *self.compiler.flags, *apart, *self.compiler.includes,
             f"-D_GLIBCXX_USE_CXX11_ABI={self.compiler.abi}", "-shared", "-fPIC", written, "-o", made,
             "-MD", "-MF", told, *objects, *self.compiler.links],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.refuse(sentence_of(self.strategy, done.stderr + done.stdout or
                                    f"the compiler ends with status {done.returncode}",
                                    "name a type that <tutti/strategies.hpp> or your header declares"))
        try:
            ctypes.CDLL(made)
        except OSError as reason:
            self.refuse(f"{self.strategy} compiles but does not load: {reason}. "
                        "Fix: define in the header what it declares")
        return made, headers_in(pathlib.Path(told))


def compiled(strategy: str, header: str | None = None, optimizer: str | None = None,
             place: str = "on_host"):
    """Returns the binding to torch, and the address of the strategy's function for it. Where
    neither has been built yet, both are built at once."""
    its, bound = Build(strategy, header, optimizer, place), Binding(place)
    bound.expect_ninja()
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        module = beside.submit(bound.module)
        function = its.library().tutti_torch_trainer
        return module.result(), ctypes.cast(function, ctypes.c_void_p).value
