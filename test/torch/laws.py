"""Common parts of this folder's tests: the ranks that mpirun starts, which torch.distributed uses,
too, and a function that runs cases.

With TUTTI_TEST_DEVICE=cuda, models lie on one GPU, which all ranks share. NCCL takes it for a GPU
on a different host for each rank."""

import os
import sys
import traceback

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti_torch

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
ranks = int(os.environ["OMPI_COMM_WORLD_SIZE"])
device = os.environ.get("TUTTI_TEST_DEVICE", "cpu")
place = "on_host"
if device == "cuda":
    place = "on_cuda"
    os.environ["NCCL_HOSTID"] = str(rank)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # torch requires it for equal products
    torch.use_deterministic_algorithms(True, warn_only=True)
dense = "strategies::Horovod"
crossing = "strategies::ByteScheduler"
momenta = "strategies::OneBitAdam"
served = "strategies::AsyncEASGD"
remembering = {"strategy": "mine::Strategy",
               "header": os.path.join(os.path.dirname(os.path.abspath(__file__)), "mine.hpp")}
late = {**remembering, "strategy": "mine::Late"}


def placed(module):
    """Returns the module, moved to the GPU if models lie on one."""
    return module.to(device) if device == "cuda" else module


def ours(module, **named):
    return tutti_torch.DataParallel(placed(module), **{"strategy": dense, **named})


def theirs(module, **named):
    return DistributedDataParallel(placed(module), **named)


def equal(mine, other, what):
    """Expects equal tensors, bit for bit on two ranks, because they can add in one order only. On
    more ranks, sums are rounded differently than under DistributedDataParallel, and BatchNorm
    amplifies that from step to step, so that a tolerance applies."""
    mine, other = torch.as_tensor(mine).cpu(), torch.as_tensor(other).cpu()
    same = torch.equal(mine, other) if ranks <= 2 else torch.allclose(mine, other, 1e-3, 1e-5)
    assert same, f"{what}: {mine} is not {other}"


def of_every_rank(value):
    """Returns every rank's tensor, in the order of ranks, on the host."""
    value = value.cpu().contiguous()
    all_of_them = [torch.empty_like(value) for _ in range(ranks)]
    dist.all_gather(all_of_them, value)
    return all_of_them


def refused(sentence, act):
    """Expects that `act` raises a RuntimeError with one line, which contains `sentence` and a fix.
    Returns the line."""
    try:
        act()
    except RuntimeError as error:
        said = str(error)
        assert sentence in said and "Fix: " in said and "\n" not in said, f"said {said!r}"
        return said
    raise AssertionError(f"nobody said {sentence!r}")


def run(cases):
    """Runs each case on every rank, and ends the job when a case fails."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method="file://"
                            + os.path.join(os.environ["TUTTI_TEST_SCRATCH"], "ranks"))
    for case in cases:
        torch.manual_seed(1)
        try:
            case()
        except BaseException:
            traceback.print_exc()
            print(f"rank {rank}: {case.__name__} failed", file=sys.stderr, flush=True)
            os._exit(1)
        if rank == 0:
            print(f"{case.__name__} passed", flush=True)
    dist.barrier()
    dist.destroy_process_group()  # before Python ends, because a thread of gloo frees tensors
