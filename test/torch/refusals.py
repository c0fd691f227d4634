"""Tests that wrong uses raise one Python exception of one sentence with a fix, on every rank."""

import copy
import os
import pickle
import shutil
import subprocess
import sys

import torch
import torch.distributed as dist

import laws
import tutti_torch
from laws import ours, rank, refused
from tutti_torch import building, toolkit
from tutti_torch.optimizer import Optimizer


def linear():
    return torch.nn.Linear(3, 2)


def without_torch():
    """Imports the package without torch, or with a torch that is older than the hooks it needs."""
    package = os.environ["PYTHONPATH"]
    for sentence, version in (("which this Python lacks", None),
                              ("needs torch 1.13 or newer, but this is 1.9.1", "1.9.1"),
                              ("needs torch 1.13 or newer, but this is 0.4", "0.4")):
        folder = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], f"torch.{version}.{rank}")
        os.makedirs(os.path.join(folder, "torch"))
        if version is None:
            told = 'raise ModuleNotFoundError("No module named \'torch\'", name="torch")'
        else:
            told = f"__version__ = {version!r}"
        with open(os.path.join(folder, "torch", "__init__.py"), "w") as stub:
            stub.write(told)
        done = subprocess.run([sys.executable, "-B", "-c", "import tutti_torch"], check=False,
                              env={**os.environ, "PYTHONPATH": f"{folder}:{package}"},
                              capture_output=True, text=True)
        *_, said = done.stderr.splitlines()
        assert done.returncode == 1 and "During handling" not in done.stderr, done
        assert said.startswith("ImportError: ") and sentence in said and "Fix: " in said, done


def a_refused_composition():
    refused("tutti: this architecture adds encoded payloads in flight",
            lambda: ours(linear(), strategy="compose<architecture::all_reduce<>, compression::top_k>"))


def what_is_no_strategy():
    said = refused("Fix: name a type that <tutti/strategies.hpp> or your header declares",
                   lambda: ours(linear(), strategy="strategies::Nope"))
    assert said.startswith("strategies::Nope does not compile: "), said
    refused("strategies::BSP; int x does not compile: ",
            lambda: ours(linear(), strategy="strategies::BSP; int x"))
    refused("there is no file /nowhere.hpp", lambda: ours(linear(), header="/nowhere.hpp"))


def a_missing_mpicxx():
    known = os.environ["TUTTI_MPICXX"]
    os.environ["TUTTI_MPICXX"] = "/nowhere"
    refused("/nowhere --showme:compile failed", lambda: ours(linear(), strategy="strategies::BSP"))
    os.environ["TUTTI_MPICXX"] = known


def a_cache_that_cannot_be():
    known = os.environ["TUTTI_CACHE"]
    os.environ["TUTTI_CACHE"] = "/proc/nope"
    refused("cannot be kept in /proc/nope", lambda: ours(linear(), strategy="strategies::BSP"))
    os.environ["TUTTI_CACHE"] = known


def a_missing_ninja():
    whole = os.environ["PATH"]
    folder = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], f"without.{rank}")
    os.mkdir(folder)
    for program in ("c++", "mpicxx", "g++"):
        os.symlink(shutil.which(program), os.path.join(folder, program))
    os.environ["PATH"] = folder
    known = os.environ["TUTTI_CACHE"]
    os.environ["TUTTI_CACHE"] = os.environ["TUTTI_TEST_SCRATCH"]
    refused("ninja", lambda: ours(linear(), strategy="strategies::ByteScheduler"))
    os.environ.update(PATH=whole, TUTTI_CACHE=known)


def what_a_gpu_needs():
    """What a model on a GPU needs is checked before anything is compiled for it."""
    def build():
        building.Build("strategies::BSP", None, place="on_cuda")

    names = ("CUDA_HOME", "CUDA_PATH", "NCCL_ROOT", "TORCH_CUDA_ARCH_LIST", "PATH")
    known = {each: os.environ.pop(each, None) for each in names}
    its, torch.version.cuda = torch.version.cuda, None
    refused("is built without CUDA", build)
    torch.version.cuda = "13.0"
    folder = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], f"toolkit.{rank}")
    toolkit.usual = {"CUDA": folder, "NCCL": folder, "wheel": "nvidia.none"}
    refused("no nvcc is found", build)
    os.makedirs(os.path.join(folder, "bin"))
    nvcc = os.path.join(folder, "bin", "nvcc")
    for release, sentence in (("12.4", "is of release 12.4"), ("13.1", "NCCL's header or library")):
        with open(nvcc, "w") as script:
            script.write(f"#!/bin/sh\necho Cuda compilation tools, release {release}, V{release}.9\n")
        os.chmod(nvcc, 0o755)
        refused(sentence, build)
    for each in ("include/nccl.h", "lib/libnccl.so.2"):
        os.makedirs(os.path.dirname(os.path.join(folder, each)))
        open(os.path.join(folder, each), "w").close()
    if not torch.cuda.is_available():
        refused("this machine has no GPU", build)
    torch.version.cuda = its
    os.environ.update({each: value for each, value in known.items() if value is not None})


def options():
    for sentence, its in (("no option fusion.bites", {"fusion.bites": 3}),
                          ("coordination.by cannot be colour. Fix: one of ",
                           {"coordination.by": "colour"}),
                          ("coordination.by cannot be 3", {"coordination.by": 3}),
                          ("run.progress cannot be often. Fix: one of automatic, caller, thread",
                           {"run.progress": "often"}),
                          ("fusion.bytes cannot be many", {"fusion.bytes": "many"}),
                          ("fusion.bytes cannot be -1", {"fusion.bytes": -1}),
                          ("fusion.bytes cannot be True", {"fusion.bytes": True}),
                          ("fusion.bytes cannot be 1.5", {"fusion.bytes": torch.tensor(1.5)}),
                          ("no option 1", {1: 2}),
                          ("options must be a dict, not 'fusion.bytes=1'", "fusion.bytes=1"),
                          ("fusion.cycle cannot be None", {"fusion.cycle": None})):
        refused(sentence, lambda: ours(linear(), options=its))
    model = ours(linear(), options={"fusion.bytes": 1e6})  # a whole number of bytes, as a float
    for its in ({"divide_by_initial_world_size": False}, {"throw_on_early_termination": True}):
        refused("join() keeps means over all ranks", lambda: model.join(**its).__enter__())


def models():
    refused("the model is None. Fix: pass a torch.nn.Module", lambda: tutti_torch.DataParallel(None, laws.dense))
    for copied in (copy.deepcopy, pickle.dumps):
        refused("copy model.module", lambda: copied(ours(linear())))
    refused("requires a gradient", lambda: ours(linear().requires_grad_(False)))
    refused("weight has type Double", lambda: ours(linear().double()))
    overlapping = linear()
    overlapping.weight = torch.nn.Parameter(torch.zeros(3).expand(2, 3))
    refused("share memory", lambda: ours(overlapping))
    refused("weight has no shape yet", lambda: ours(torch.nn.LazyLinear(2)))
    refused("weight is on meta", lambda: ours(torch.nn.Linear(3, 2, device="meta")))


def copies_of_a_module():
    """A copy, or what has been pickled, of a module that is trained across the barrier."""
    module = linear()
    model = ours(module, strategy=laws.crossing,
                 optimizer=torch.optim.SGD(module.parameters(), lr=0.1))
    refused("a thread has to drive communication", lambda: ours(
        module, strategy=laws.crossing, options={"run.progress": "caller"},
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1)))
    model(torch.ones(1, 3)).sum().backward()
    model.wait()
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(copied(torch.ones(1, 3)), module(torch.ones(1, 3)))
    model._close()


def replaced_parameters():
    """A parameter that was not wrapped would be trained by each rank alone."""
    network = torch.nn.Sequential(linear(), torch.nn.Linear(2, 2))
    model = ours(network)
    model(torch.ones(1, 3)).sum().backward()
    if hasattr(torch, "func"):  # what is computed from parameters may take their place
        twice = {name: 2 * each for name, each in model.named_parameters()}
        torch.func.functional_call(model, twice, torch.ones(1, 3)).sum().backward()
    network[1] = torch.nn.Linear(2, 4)
    refused("1.weight has been replaced or added", lambda: model(torch.ones(1, 3)))
    network[1].requires_grad_(False)
    model(torch.ones(1, 3)).sum().backward()
    model._close()


def models_that_differ():
    """A frozen parameter or a buffer has another size on each rank, or is missing from one; or a
    switch is on at one rank alone."""
    frozen = torch.nn.Sequential(linear(), torch.nn.Linear(2, 3 + rank).requires_grad_(False))
    sized, lacking = linear(), linear()
    sized.register_buffer("its", torch.zeros(2 - rank))
    if rank == 0:
        lacking.register_buffer("its", torch.zeros(2))
    for each in (frozen, sized, lacking):
        refused("buffers or frozen parameters of different types or sizes", lambda: ours(each))
    for switch in "broadcast_buffers", "find_unused_parameters":
        refused(f"ranks differ in {switch}", lambda: ours(linear(), **{switch: rank == 0}))


def models_on_servers():
    """The strategy sends parameters, and the last rank is a server."""
    refused("this architecture sends parameters",
            lambda: ours(linear().bfloat16(), strategy=laws.served))
    model = ours(linear(), strategy=laws.served)
    assert model.serves == (rank == laws.ranks - 1)
    refused("servers hold state that no worker can save", model.state_dict)
    if model.serves:
        model.serve()
    model._close()


def a_rank_without_a_pass():
    """Rank 1 reports after the deadline that rank 0 has begun no pass."""
    model = ours(torch.nn.BatchNorm1d(3), options={"run.deadline": 5.0})
    if rank == 1:
        refused("rank 0 has not begun the pass that rank 1 is in", lambda: model(torch.ones(2, 3)))
    dist.barrier()


def a_rank_that_has_left():
    """The error of a rank that waits for one that has ended names what a model has, a join()."""
    model = ours(linear(), options={"run.deadline": 1.0})
    if rank == 1:
        model._close()
    else:
        refused("Fix: give every rank as many batches, or call join() where there are no more",
                lambda: model(torch.ones(1, 3)).sum().backward())
    dist.barrier()


def a_scaler_that_comes_too_late():
    model = linear()
    refused("scaler.step() skips an update that tutti has already made", lambda: ours(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), scaler=object()))


def a_launcher_that_mpi_does_not_know():
    """Processes are started as by torchrun or Slurm, without mpirun's environment variables."""
    alone = {name: value for name, value in os.environ.items()
             if not name.startswith(("OMPI_", "PMIX_", "PMI_"))}
    for size in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        done = subprocess.run(
            [sys.executable, "-c", "import torch, tutti_torch\n"
             f"tutti_torch.DataParallel(torch.nn.Linear(3, 2), {laws.dense!r})"],
            env={**alone, size: "2", "RANK": "0"}, capture_output=True, text=True, check=False)
        assert done.returncode != 0, done
        assert "a launcher started 2 processes, but MPI sees only this one" in done.stderr, done


def a_changed_model():
    for sentence, change in (
            ("no longer requires", lambda its: its.weight.requires_grad_(False)),
            ("bias now requires", lambda its: its.bias.requires_grad_()),
            ("has moved in memory", lambda its: setattr(its.weight, "data", its.weight.data.clone()))):
        model = linear()
        model.bias.requires_grad_(False)
        model = ours(model)
        change(model.module)
        refused(sentence, lambda: model(torch.ones(1, 3)))


def reset(parameter):
    parameter.grad = None


def gradients():
    model = ours(torch.nn.Embedding(4, 2, sparse=True))
    refused("sparse", lambda: model(torch.tensor([1])).sum().backward())
    refused("ended with an exception", lambda: model(torch.tensor([1])))
    dist.barrier()  # a model deleted with gradients on their way ends the others', too
    module = laws.placed(linear())
    if hasattr(module.weight, "register_post_accumulate_grad_hook"):  # since torch 2.1
        module.weight.register_post_accumulate_grad_hook(reset)
    else:
        node = module.weight.expand_as(module.weight).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: reset(module.weight))
    model = ours(module)
    refused("a hook removed", lambda: model(torch.ones(1, 3)).sum().backward())
    dist.barrier()
    model = ours(linear())
    refused("create_graph",
            lambda: model(torch.ones(1, 3)).square().sum().backward(create_graph=True))
    dist.barrier()


class Twice(torch.nn.Module):
    """Two checkpointed parts share a weight, whose first gradient is not its last."""

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


def a_hooked_optimizer():
    """With torch 1.13 optimizers have no hooks."""
    module = linear()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    if hasattr(optimizer, "register_step_post_hook"):
        wrapped = Optimizer(optimizer, list(module.named_parameters()))
        optimizer.register_step_post_hook(lambda *_: None)
        refused("a hook around its step()", wrapped.values)


def a_step_late_cannot_be_skipped():
    """A skipped step would lose the mean of the step before, whose gradients were finite and had
    another scale."""
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


laws.run([without_torch, a_missing_mpicxx, a_cache_that_cannot_be, what_a_gpu_needs, options,
          models, copies_of_a_module, replaced_parameters, models_that_differ,
          a_rank_without_a_pass, a_rank_that_has_left, a_refused_composition, what_is_no_strategy,
          a_missing_ninja, models_on_servers, a_scaler_that_comes_too_late,
          a_launcher_that_mpi_does_not_know, a_changed_model, gradients, a_second_gradient,
          a_hooked_optimizer, a_step_late_cannot_be_skipped])
