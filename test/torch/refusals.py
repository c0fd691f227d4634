"""Whatever cannot be is one Python exception of one sentence with a fix, on every rank."""

import os
import shutil
import subprocess
import sys

import torch
import torch.distributed as dist

import laws
from laws import ours, rank, refused


def linear():
    return torch.nn.Linear(3, 2)


def a_refused_composition():
    refused("tutti: this architecture adds encoded payloads in flight",
            lambda: ours(linear(), strategy="compose<architecture::all_reduce<>, compression::top_k>"))


def a_missing_ninja():
    whole = os.environ["PATH"]
    folder = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], f"without.{rank}")
    os.mkdir(folder)
    for program in ("c++", "mpicxx", "g++"):
        os.symlink(shutil.which(program), os.path.join(folder, program))
    os.environ["PATH"] = folder
    refused("ninja", lambda: ours(linear(), strategy="strategies::ByteScheduler"))
    os.environ["PATH"] = whole


def options():
    refused("no option fusion.bites", lambda: ours(linear(), options={"fusion.bites": 3}))


def models():
    refused("requires a gradient", lambda: ours(linear().requires_grad_(False)))
    refused("weight is of Double", lambda: ours(linear().double()))
    overlapping = linear()
    overlapping.weight = torch.nn.Parameter(torch.zeros(3).expand(2, 3))
    refused("share memory", lambda: ours(overlapping))


def a_scaler_that_comes_too_late():
    model = linear()
    refused("scaler.step() skips an update", lambda: ours(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), scaler=object()))


def a_launcher_that_mpi_does_not_know():
    """As torchrun starts them: nothing of mpirun's is around."""
    alone = {name: value for name, value in os.environ.items()
             if not name.startswith(("OMPI_", "PMIX_", "PMI_"))}
    done = subprocess.run(
        [sys.executable, "-c", "import torch, tutti_torch\n"
         f"tutti_torch.DataParallel(torch.nn.Linear(3, 2), {laws.dense!r})"],
        env={**alone, "WORLD_SIZE": "2", "RANK": "0"}, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done
    assert "a launcher started 2 processes, and MPI knows of this one alone" in done.stderr, done


def a_changed_model():
    for sentence, change in (
            ("no longer requires", lambda its: its.weight.requires_grad_(False)),
            ("lies elsewhere", lambda its: setattr(its.weight, "data", its.weight.data.clone()))):
        model = ours(linear())
        change(model.module)
        refused(sentence, lambda: model(torch.ones(1, 3)))


def gradients():
    model = ours(torch.nn.Embedding(4, 2, sparse=True))
    refused("sparse", lambda: model(torch.tensor([1])).sum().backward())
    refused("ended with an exception", lambda: model(torch.tensor([1])))
    dist.barrier()  # a model that goes with gradients on their way ends the others', too
    model = ours(linear())
    refused("create_graph",
            lambda: model(torch.ones(1, 3)).square().sum().backward(create_graph=True))
    dist.barrier()


class Twice(torch.nn.Module):
    """Two checkpointed parts with one weight: its first gradient is not its last."""

    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(3, 3)
        self.first = torch.nn.Linear(3, 3)

    def forward(self, x):
        x = self.first(x)
        for _ in range(2):
            x = torch.utils.checkpoint.checkpoint(self.part, x, use_reentrant=True)
        return x


def a_second_gradient():
    import torch.utils.checkpoint
    model = ours(Twice())
    refused("second gradient", lambda: model(torch.ones(1, 3)).sum().backward())
    dist.barrier()


def a_step_late_cannot_be_skipped():
    """The mean that a skipped step would lose is one of finite gradients, and of another scale."""
    model = ours(linear(), **laws.late)
    model(torch.ones(1, 3)).sum().backward()
    unbounded = float("inf") if rank == laws.ranks - 1 else 1.0
    refused("a gradient that is not finite",
            lambda: (model(torch.ones(1, 3)).sum() * unbounded).backward())
    dist.barrier()

    class Scaler:
        def get_scale(self):
            return 2.0 ** 13

    model = ours(linear(), scaler=Scaler(), **laws.late)
    refused("means arrive a step late", lambda: model(torch.ones(1, 3)))


laws.run([a_refused_composition, a_missing_ninja, options, models,
          a_scaler_that_comes_too_late, a_launcher_that_mpi_does_not_know, a_changed_model,
          gradients, a_second_gradient, a_step_late_cannot_be_skipped])
