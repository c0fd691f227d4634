"""A rank of bench/peers, which starts it: every contestant in its turn trains the same model."""

import gc
import glob
import gzip
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import threading
import time
import weakref

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from pytorch_throughput import resnet50

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, f"{root}/apps/torch")
import tutti_torch
from tutti_torch.building import Binding, Build, compiled

# DDP rebuilds its buckets at the second step, and PowerSGD's hook compresses from the third.
warmup = 3
rest = 0.5  # seconds without any work, at the end of each turn and after it
watched = 2  # steps after the measured ones, in which a thread watches the link


# ---- what is trained


def transformer():
    """BERT-Base's encoder: 12 layers of 768, without its embeddings."""
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu",
                                             batch_first=True)
    return torch.nn.TransformerEncoder(layer, 12)


def cnn():
    """apps/models/cnn.hpp: four small convolutions and two fully connected layers, with weights as
    in He et al., "Delving deep into rectifiers", 2015: with torch's own, training takes 50 steps to
    begin."""
    def convolution(inputs, outputs, *then):
        return torch.nn.Conv2d(inputs, outputs, 3, padding=1), *then, torch.nn.ReLU()
    pool = torch.nn.MaxPool2d(2)
    model = torch.nn.Sequential(
        *convolution(1, 16), *convolution(16, 16, pool), *convolution(16, 32, pool),
        *convolution(32, 64), torch.nn.Flatten(),
        torch.nn.Linear(64 * 7 * 7, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    for each in model:
        if hasattr(each, "weight"):
            torch.nn.init.kaiming_normal_(each.weight)
            torch.nn.init.zeros_(each.bias)
    return model


def fashion_mnist():
    """Returns Debian's 60,000 training images and their labels."""
    def bytes_of(name, header):
        with gzip.open(f"/usr/share/datasets/fashion-mnist/train-{name}-ubyte.gz") as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)
    return (bytes_of("images-idx3", 16).view(-1, 1, 28, 28).float() / 255,
            bytes_of("labels-idx1", 8).long())


def model_and_loss(given, start=0):
    """Returns a model, initialised from the seed `start`, and a function of model and step that
    returns the loss on a batch of this rank's own."""
    torch.manual_seed(start)
    batch, size = given["batch"], given["size"]
    own = torch.Generator().manual_seed(start * dist.get_world_size() + dist.get_rank())
    if given["model"] == "transformer":
        tokens = torch.randn(batch, size, 768, generator=own)
        return transformer(), lambda model, _: model(tokens).square().mean()
    if given["model"] == "cnn":
        images, labels = fashion_mnist()
        order = torch.randperm(len(labels), generator=own)
        model = cnn()
    else:
        images = torch.randn(batch, 3, size, size, generator=own)
        labels = torch.randint(1000, (batch,), generator=own)
        order = torch.arange(batch)
        model = resnet50()

    def loss(model, step):
        chosen = order.roll(-step * batch)[:batch]
        return torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
    return model, loss


# ---- contestants: each turns a model into what is trained, with an optimizer


def sgd(model, lr=0.03, momentum=0.9):
    return torch.optim.SGD(model.parameters(), lr, momentum)


class Bare:
    def to_compile(self):
        """Returns the strategy to compile before the run, if there is any."""

    def made(self, model):
        return model, sgd(model)

    def begin(self, trained, step):
        """Changes settings before a step."""

    def ended(self, trained):
        """Waits until no communication of a step is under way."""


class BareAdam(Bare):
    def made(self, model):
        return model, torch.optim.Adam(model.parameters())


class DDP(Bare):
    def __init__(self, megabytes, hook=None):
        self.megabytes, self.hook = megabytes, hook

    def made(self, model):
        trained = DistributedDataParallel(model, bucket_cap_mb=self.megabytes,
                                          gradient_as_bucket_view=True)
        if self.hook is not None:
            trained.register_comm_hook(None, self.hook)
        return trained, sgd(trained)


class OneBucketPowerSGD(Bare):
    """With several buckets gloo aborts, because ranks start the hook's second messages in different
    orders."""

    def __init__(self, rank, start=warmup - 1):
        self.rank, self.start = rank, start

    def made(self, model):
        first, dist._DEFAULT_FIRST_BUCKET_BYTES = dist._DEFAULT_FIRST_BUCKET_BYTES, 1 << 40
        trained = DistributedDataParallel(model, bucket_cap_mb=1 << 20,
                                          gradient_as_bucket_view=True)
        dist._DEFAULT_FIRST_BUCKET_BYTES = first
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=self.rank,
                                            start_powerSGD_iter=self.start)
        trained.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return trained, sgd(trained)


class Tutti(Bare):
    optimizer = None

    def __init__(self, strategy, header=None, options=None, **values):
        self.strategy, self.header, self.options, self.values = strategy, header, options, values

    def to_compile(self):
        return self.strategy, self.header, self.optimizer

    def made(self, model):
        trained = tutti_torch.DataParallel(model, self.strategy, header=self.header,
                                           options=self.options)
        return trained, sgd(trained, **self.values)


class AcrossTheBarrier(Tutti):
    optimizer = "optimizer::sgd"

    def made(self, model):
        optimizer = sgd(model)
        return tutti_torch.DataParallel(model, self.strategy, optimizer=optimizer,
                                        options=self.options), optimizer

    def ended(self, trained):
        trained.wait()


class OneBitAdam(AcrossTheBarrier):
    """Measured in steps in which the variance is frozen and momenta are exchanged."""
    optimizer = "optimizer::one_bit_adam"

    def __init__(self, strategy, freeze_step=warmup - 1, eps=1e-8):
        super().__init__(strategy)
        self.freeze_step, self.eps = freeze_step, eps

    def made(self, model):
        optimizer = tutti_torch.OneBitAdam(model.parameters(), lr=0.001, eps=self.eps,
                                           freeze_step=self.freeze_step)
        return tutti_torch.DataParallel(model, self.strategy, optimizer=optimizer), optimizer


class WarmedUp(Tutti):
    """Selects the shares of DGC's first four epochs, for six steps each."""

    def begin(self, trained, step):
        density = dict(zip(range(0, 30, 6), [0.25, 0.0625, 0.015625, 0.004, 0.001])).get(step)
        if density is not None:
            trained.replan({"compression.density": density})


# Large residuals act as a momentum, and two are unstable.
def beside_a_residual(lr):
    return {"lr": lr, "momentum": 0.0}


contestants = {
    "no communication": Bare(),
    "DDP 25 MB": DDP(25),
    "tutti DDP": Tutti("strategies::DDP"),
    "DDP 1 MB": DDP(1),
    "tutti WFBPUnlimited": Tutti("strategies::WFBPUnlimited"),
    "tutti Horovod": Tutti("strategies::Horovod"),
    "tutti ByteScheduler": AcrossTheBarrier("strategies::ByteScheduler"),
    "tutti ByteScheduler 2 MB": AcrossTheBarrier(
        "strategies::ByteScheduler",
        options={"partition.bytes": 2_000_000, "schedule.credit": 4_000_000}),
    "DDP fp16 hook": DDP(25, default_hooks.fp16_compress_hook),
    "tutti Dense16": Tutti("strategies::Dense16", f"{root}/apps/compare/baseline.hpp"),
    "DDP PowerSGD hook": OneBucketPowerSGD(2),
    "tutti PowerSGD": Tutti("strategies::PowerSGD"),
    "DDP PowerSGD hook of rank 1": OneBucketPowerSGD(1),
    "tutti PowerSGD of rank 1": Tutti("strategies::PowerSGD", options={"compression.rank": 1}),
    "tutti EFSignSGD": Tutti("strategies::EFSignSGD", **beside_a_residual(0.14)),
    "no communication, Adam": BareAdam(),  # to compare 1-bit Adam with
    "tutti OneBitAdam": OneBitAdam("strategies::OneBitAdam"),
    "tutti TopK": Tutti("strategies::TopK", **beside_a_residual(0.16)),
    "tutti TopK 1 %": Tutti("strategies::TopK", options={"compression.density": 0.01},
                            **beside_a_residual(0.12)),
}
# These rows show the loss after a hundred steps, not the time. Their first steps are dense, as by
# default PyTorch's hook has 1000 dense steps, and 1-bit Adam many.
also_on_fashion_mnist = {
    "DDP PowerSGD hook of rank 4, 25 dense": OneBucketPowerSGD(4, start=25),
    "tutti PowerSGD of rank 4, 25 dense": Tutti(
        "strategies::PowerSGD", options={"compression.rank": 4, "compression.start": 25}),
    "tutti TopK, 24 of a warm-up": WarmedUp("strategies::TopK", **beside_a_residual(0.16)),
    # One-bit momenta also move units that never fire: see tutti/optimizer/one_bit_adam.hpp.
    "tutti OneBitAdam": OneBitAdam("strategies::OneBitAdam", freeze_step=25, eps=1e-4),
}


def chosen(given):
    known = contestants | (also_on_fashion_mnist if given["model"] == "cnn" else {})
    words = [each for each in given["only"].lower().split(",") if each] or [""]
    for word in words:
        if not any(word in name.lower() for name in known):
            print(f"peers: no contestant has '{word}' in its name. Fix: a word of "
                  + "; ".join(known), file=sys.stderr)
            sys.exit(2)
    return {name: each for name, each in known.items()
            if type(each) is Bare or any(word in name.lower() for word in words)}


# ---- measuring


def used():
    """Returns the processor time used until now by this process, and this host's share of that of
    the kernel's threads for soft interrupts. Soft interrupts that are handled while a process runs
    count as that process's."""
    mine = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    return mine + kernel_ticks() / os.sysconf("SC_CLK_TCK") / dist.get_world_size()


def kernel_ticks():
    total = 0
    for path in soft_interrupts:
        with open(path, encoding="ascii") as file:
            total += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
    return total


def threads_of_soft_interrupts():
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                if "(ksoftirqd/" in file.read():
                    yield path
        except OSError:
            pass  # it has ended


soft_interrupts = list(threads_of_soft_interrupts())


def sent():
    device = os.environ["GLOO_SOCKET_IFNAME"]
    with open(f"/sys/class/net/{device}/statistics/tx_bytes", encoding="ascii") as file:
        return int(file.read())


class Wire(threading.Thread):
    """Watches the bytes that the link has sent, to find when a step's bytes begin and end to leave.
    The first and the last hundredth are ignored, because barriers send some bytes, too."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen, self.ends = [(time.perf_counter(), sent())], False

    def run(self):
        while not self.ends:
            time.sleep(0.5e-3)
            self.seen.append((time.perf_counter(), sent()))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        self.join()
        self.seen.append((time.perf_counter(), sent()))

    def seconds(self):
        """Returns the time from the first byte to the last, or None if fewer than 10,000 were
        sent."""
        first, last = self.seen[0][1], self.seen[-1][1]
        if last - first < 10_000:
            return None
        begin = next(when for when, count in self.seen if count > first + (last - first) / 100)
        end = next(when for when, count in self.seen if count >= last - (last - first) / 100)
        return end - begin


def share_used_at_rest():
    """Returns the share of a core that is used while there is no work."""
    before, begin = used(), time.perf_counter()
    time.sleep(rest)
    return (used() - before) / (time.perf_counter() - begin)


class Turn:
    """The steps of one contestant, whose objects exist only in `train`."""

    def __init__(self, contestant, given, start):
        self.seconds, self.computes, self.losses = [], [], []
        alive = self.train(contestant, *model_and_loss(given, start), given["steps"])
        gc.collect()
        if alive() is not None:
            raise RuntimeError("a contestant is still alive after its turn")
        dist.barrier()
        self.idle = share_used_at_rest()

    def train(self, contestant, model, loss, steps):
        trained, optimizer = contestant.made(model)
        at_last_gradient = []  # when each backward pass computed the first layer's
        next(model.parameters()).register_hook(
            lambda _: at_last_gradient.append(time.perf_counter()))

        def step():
            contestant.begin(trained, len(self.losses))
            optimizer.zero_grad()
            its = loss(trained, len(self.losses))
            its.backward()
            optimizer.step()
            self.losses.append(its.item())

        for _ in range(warmup):
            step()
        dist.barrier()  # what crosses a step's end also crosses into the first measured step
        cpu, bytes_sent = used(), sent()
        for _ in range(steps):
            begin = time.perf_counter()
            step()
            self.seconds.append(time.perf_counter() - begin)
            self.computes.append(at_last_gradient[-1] - begin)
        self.cpu = (used() - cpu) / steps
        self.bytes = (sent() - bytes_sent) / steps
        self.on_the_wire = []
        contestant.ended(trained)  # the rest of the last measured step is not watched
        for _ in range(watched):
            dist.barrier()
            with Wire() as wire:
                step()
                contestant.ended(trained)
                dist.barrier()
            self.on_the_wire.append(wire.seconds())
        del self.losses[-watched:]  # watched steps do not count
        dist.barrier()
        self.at_rest = share_used_at_rest()
        if isinstance(contestant, Tutti):
            trained._close()
        return weakref.ref(trained)


def gathered(mine):
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, mine)
    return everybody


def median_or_none(figures):
    return None if None in figures else statistics.median(figures)


def summary(name, turns):
    """Returns a contestant's figures. `turns` has a list of ranks for each round. A step lasts as
    long as on the slower rank."""
    def on_the_slower(what):
        return [max(ranks) for turn in turns for ranks in zip(*(each[what] for each in turn))]

    steps = on_the_slower("seconds")
    ranks = [each for turn in turns for each in turn]
    losses = [statistics.mean(step) for step in zip(*(each["losses"] for each in ranks))]
    return {"name": name, "median": statistics.median(steps), "worst": max(steps),
            "computes": statistics.median(on_the_slower("computes")),
            "cpu": statistics.mean(each["cpu"] for each in ranks),
            "bytes": max(each["bytes"] for each in ranks),
            "loss": statistics.mean(losses[-max(1, len(losses) // 10):]),
            "losses": [each["losses"] for each in ranks],
            "on_the_wire": median_or_none([took for each in ranks for took in each["on_the_wire"]]),
            "idle": max(each["idle"] for each in ranks),
            "at_rest": statistics.median(each["at_rest"] for each in ranks)}


def in_their_order(playing, number):
    """Returns the names of those who play in round `number`, in the order of their turns. Every
    other round is played backwards, because the same contestant has been seen to take a tenth
    longer in a later place."""
    return list(playing) if number % 2 == 0 else list(reversed(playing))


def train(given):
    """Trains every contestant in its turn, round by round. Each round has another initial
    model. Rank 0 writes the results."""
    playing = chosen(given)
    turns = {name: [] for name in playing}
    for number in range(given["rounds"]):
        for name in in_their_order(playing, number):
            turns[name].append(gathered(vars(Turn(playing[name], given, number))))
            if dist.get_rank() == 0:
                median = summary(name, turns[name][-1:])["median"]
                print(f"peers: round {number + 1} of {given['rounds']}: {name} {median * 1e3:.0f} ms",
                      file=sys.stderr, flush=True)
    if dist.get_rank() == 0:
        rows = [summary(name, each) for name, each in turns.items()]
        with open(given["answer"], "w", encoding="utf-8") as file:
            json.dump({"contestants": rows,
                       "parameters": sum(each.numel() for each in model_and_loss(given)[0].parameters()),
                       "about": {"versions": versions(),
                                 "idle": max(each["idle"] for each in rows)}}, file)
    dist.barrier()


def versions():
    mpi = subprocess.run(["mpirun", "--version"], check=True, capture_output=True, text=True)
    return (f"torch {torch.__version__} on {blas()}, "
            f"{re.sub('[()]', '', mpi.stdout.splitlines()[0]).replace('mpirun ', '')}, "
            f"Linux {platform.release()}")


def blas():
    """Returns the BLAS with which torch multiplies, on which the bare model's speed depends
    most."""
    built_with = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    with open("/proc/self/maps", encoding="utf-8") as file:
        loaded = re.search(r"openblas|blis|mkl_rt|libatlas", file.read())
    if loaded:
        return loaded[0]
    if built_with and built_with[1] != "generic":
        return built_with[1]
    return "the reference BLAS"


def compile_strategies(given):
    """Compiles all strategies before the run, so that no rank compiles while another one
    measures."""
    for name, each in chosen(given).items():
        if (build := each.to_compile()) is not None:
            try:
                if Build(*build).built() is None or Binding().built() is None:
                    print(f"peers: compiling {name}, which takes half a minute", file=sys.stderr, flush=True)
                compiled(*build)
            except RuntimeError as reason:
                sys.exit(f"peers: {reason}")
    if blas() == "the reference BLAS":
        print("peers: torch uses the reference BLAS, which is five times slower than others. "
              "Fix: apt-get install libopenblas0", file=sys.stderr)


if __name__ == "__main__":
    asked = json.loads(sys.argv[2])
    if sys.argv[1] == "compile":
        compile_strategies(asked)
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", rank=int(os.environ["OMPI_COMM_WORLD_RANK"]),
                                world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))
        train(asked)
        dist.destroy_process_group()  # before Python ends, because a thread of gloo's frees tensors
