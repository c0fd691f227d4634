"""Finds what strategies for a GPU are compiled and linked with: CUDA's toolkit, NCCL and torch's
libraries for CUDA."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess

import torch

usual = {"CUDA": "/usr/local/cuda", "NCCL": "/usr", "wheel": "nvidia.nccl"}

class Toolkit:
    """The flags of compiler and linker. Raises RuntimeError of one sentence if something is
    missing."""

    def __init__(self):
        if torch.version.cuda is None:
            raise RuntimeError(f"this torch, {torch.__version__}, is built without CUDA, without "
                               "which tutti cannot train on a GPU. Fix: install one that is built for it, "
                               "or model.cpu()")
        self.home = self._home()
        self.nvcc = str(self.home / "bin/nvcc")
        self.release = self._release()
        header, library = self._nccl()
        pytorch = pathlib.Path(torch.__file__).parent / "lib"
        cudart = next((each for each in (self.home / "lib64", self.home / "lib")
                       if each.is_dir()), self.home)
        self.flags = ["-isystem", str(self.home / "include"), "-isystem", str(header)]
        self.torch_links = [f"-L{pytorch}", "-lc10_cuda", "-ltorch_cuda"]
        self.links = [f"-L{cudart}", "-lcudart", str(library), f"-Wl,-rpath,{library.parent}"]
        self.kernel_flags = [
            "-std=c++20", "-O3", "--extended-lambda", "--expt-relaxed-constexpr", "--fmad=false",
            "-Xcompiler=-fPIC,-ffp-contract=off,-fno-math-errno",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
            *(f"-gencode=arch=compute_{each},code=sm_{each}" for each in self._capabilities())]

    @staticmethod
    def _home() -> pathlib.Path:
        nvcc = shutil.which("nvcc")
        for each in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"),
                     nvcc and pathlib.Path(nvcc).resolve().parent.parent, usual["CUDA"]):
            if each and (pathlib.Path(each) / "bin/nvcc").exists():
                return pathlib.Path(each)
        raise RuntimeError("the model is on a GPU, but no nvcc is found to compile tutti's "
                           f"kernels. Fix: install CUDA {torch.version.cuda}'s toolkit and set "
                           "CUDA_HOME to its folder, or model.cpu()")

    def _release(self) -> str:
        """Returns what nvcc says of its version. Raises RuntimeError unless its major release is
        the one that torch is built for, because both use one CUDA runtime."""
        said = subprocess.run([self.nvcc, "--version"], capture_output=True, text=True,
                              check=False).stdout
        found = re.search(r"release (\d+)[.]\d+", said)
        wanted = torch.version.cuda.split(".")[0]
        if not found or found[1] != wanted:
            raise RuntimeError(f"this torch is built for CUDA {torch.version.cuda}, but {self.nvcc} "
                               f"is of {found[0] if found else 'an unknown release'}. Fix: "
                               f"set CUDA_HOME to the folder of a toolkit of CUDA {wanted}")
        return said

    def _nccl(self) -> tuple[pathlib.Path, pathlib.Path]:
        """Returns the folder of NCCL's header, and its library, preferably those that torch was
        installed with."""
        wheel = importlib.util.find_spec("nvidia") and importlib.util.find_spec(usual["wheel"])
        roots = [*(wheel.submodule_search_locations if wheel else ()),
                 os.environ.get("NCCL_ROOT"), self.home, usual["NCCL"]]
        for root in (pathlib.Path(each) for each in roots if each):
            for folder in ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"):
                library = root / folder / "libnccl.so.2"
                if (root / "include/nccl.h").exists() and library.exists():
                    return root / "include", library
        raise RuntimeError("the model is on a GPU, but NCCL's header or library, needed to send "
                           "gradients, is not found. Fix: pip install nvidia-nccl-cu"
                           f"{torch.version.cuda.split('.')[0]}, or set NCCL_ROOT to its folder")

    @staticmethod
    def _capabilities() -> list[str]:
        """Returns compute capabilities, as "90": those that TORCH_CUDA_ARCH_LIST names, otherwise
        those of the GPUs here."""
        named = re.findall(r"(\d+)\.(\d+[af]?)", os.environ.get("TORCH_CUDA_ARCH_LIST", ""))
        found = named or {torch.cuda.get_device_capability(each)
                          for each in range(torch.cuda.device_count())}
        if not found:
            raise RuntimeError("this machine has no GPU to compile tutti's kernels for. Fix: "
                               "TORCH_CUDA_ARCH_LIST=9.0, for example")
        return sorted({f"{major}{minor}" for major, minor in found})
