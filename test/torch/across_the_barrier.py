"""Tests training with `optimizer=`: each parameter is updated when its mean has arrived, while the
next forward pass runs. The parameters must equal those of a plain loop in one process over all
ranks' batches. The last rank is always late."""

import contextlib
import os
import time

import torch

import laws
import tutti_torch
from laws import equal, rank, ranks, refused

values = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}


class Network(torch.nn.Module):
    """A network with a weight that is read outside its own module, a layer whose hook reads
    parameters, a layer that is called twice, and a layer that is not used."""

    def __init__(self):
        super().__init__()
        self.read = torch.nn.Linear(6, 6)
        self.first = torch.nn.utils.weight_norm(torch.nn.Linear(6, 40))
        self.twice = torch.nn.Linear(40, 40)
        self.norm = torch.nn.BatchNorm1d(40, momentum=None)
        self.unused = torch.nn.Linear(3, 3)
        self.last = torch.nn.Linear(40, 2)

    def forward(self, x):
        x = torch.nn.functional.linear(x, self.read.weight)
        x = self.twice(self.twice(self.first(x).tanh()).tanh())
        return self.last(self.norm(x))


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 4)
        self.last = torch.nn.Linear(4, 2)
        self.between = lambda: None

    def forward(self, x):
        x = self.first(x)
        if x.requires_grad:
            x.register_hook(lambda _: self.between())
        return self.last(x)


class Scaled(torch.nn.Module):
    """A network with a parameter without dimensions."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 4)
        self.scale = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.first(x) * self.scale


class Detached(torch.nn.Module):
    """A network whose backward pass reads a weight after the weight's gradient is final."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 4)
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.first(x) * self.weight.detach() * self.weight


def network(kind=Network):
    torch.manual_seed(5)
    return laws.placed(kind())


def made(kind=Network, **named):
    module = network(kind)
    optimizer = torch.optim.SGD(module.parameters(), **{**values, **named})
    return wrapped(module, optimizer), optimizer


def wrapped(module, optimizer, **named):
    return laws.ours(module, strategy=laws.crossing, optimizer=optimizer,
                     options={"partition.bytes": 512}, **named)


def batch(step, of=rank):
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(97 * step + of)).to(laws.device)


def backward(model, x):
    loss = model(x).square().mean()
    if rank == ranks - 1:
        time.sleep(0.01)
    loss.backward()


def squares(parameters):
    return sum(each.square().sum() for each in parameters)


class Plain:
    """The same network under momentum SGD in one process, which rounds after every operation."""

    def __init__(self, kind=Network, penalty=0.0):
        self.network = network(kind)
        self.penalty = penalty
        self.parameters = list(self.network.parameters())
        self.directions = [torch.zeros_like(each) for each in self.parameters]

    def step(self, *steps, lr=0.1, momentum=0.9, weight_decay=0.01, of=range(ranks)):
        """Takes a step with the sum of gradients of `steps` on ranks `of`, divided by `ranks`."""
        total = None
        for each in of:
            self.network.zero_grad(set_to_none=True)
            for step in steps:
                loss = self.network(batch(step, each)).square().mean()
                if self.penalty:
                    loss = loss + self.penalty * squares(self.parameters)
                loss.backward()
            mine = [torch.zeros_like(each) if each.grad is None else each.grad
                    for each in self.parameters]
            total = mine if total is None else [a + b for a, b in zip(total, mine)]
        with torch.no_grad():
            for its, direction, gradient in zip(self.parameters, self.directions, total):
                direction.mul_(momentum).add_(gradient * (1 / ranks) + its * weight_decay)
                its.sub_(direction * lr)

    def compare(self, model):
        model.wait()
        for (name, mine), other in zip(model.module.named_parameters(), self.parameters):
            equal(mine.detach(), other.detach(), name)


def a_loop_of_torchs():
    """A loop with steps of two passes, resets to zeros and None, evaluation, and saved states."""
    model, optimizer = made()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    plain = Plain()
    for step in range(15):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        if step % 3 == 1:
            with model.no_sync():
                backward(model, batch(step + 100))
        backward(model, batch(step))
        optimizer.step()
        scheduler.step()
        if step % 5 == 2:
            model.eval()
            with torch.no_grad():
                mine = model(batch(7, 0))
            model.train()
        plain.step(*([step + 100, step] if step % 3 == 1 else [step]), lr=0.1 * 0.5 ** (step // 4))
        if step % 5 == 2:
            plain.network.eval()
            with torch.no_grad():
                for its, other in zip(plain.network.buffers(), model.module.buffers()):
                    its.copy_(other)
                equal(mine, plain.network(batch(7, 0)), "evaluated")
            plain.network.train()
        if step % 5 == 3:
            state = model.module.state_dict() if step % 2 == 0 else model.state_dict()
            for name, other in plain.network.named_parameters():
                equal(state[name if step % 2 == 0 else f"module.{name}"], other.detach(), name)
    plain.compare(model)


def rank_0_evaluates_alone():
    """Evaluation, with gradients or without, needs no other rank and disturbs no other rank."""
    model, optimizer = made()
    plain = Plain()
    for step in range(6):
        optimizer.zero_grad()
        backward(model, batch(step))
        optimizer.step()
        plain.step(step)
        model.eval()
        with torch.set_grad_enabled(step % 2 == 0):
            for _ in range(2 if rank == 0 and step < 5 else 0):
                model(batch(7, 0))
        model.train()
    plain.compare(model)
    with torch.no_grad():
        model.eval()(batch(7, 0))
    for mine in model.module.buffers():
        assert torch.equal(mine.cpu(), laws.of_every_rank(mine)[0]), "buffers of another step"


def torchs_recurrence():
    """torch's own SGD computes the same parameters, but for rounding, from the same gradients."""
    for named in ({}, {"momentum": 0.0}, {"momentum": 0.0, "weight_decay": 0.0}):
        model, optimizer = made(Pair, **named)
        module = network(Pair)
        alone = torch.optim.SGD(module.parameters(), **{**values, **named})
        for step in range(5):
            optimizer.zero_grad()
            backward(model, batch(step))
            optimizer.step()
            alone.zero_grad()
            for each in range(ranks):
                (module(batch(step, each)).square().mean() / ranks).backward()
            alone.step()
        model.wait()
        for (name, mine), other in zip(model.module.named_parameters(), module.parameters()):
            assert torch.allclose(mine, other, 1e-5, 1e-6), name


def schedules_of_rank_0():
    """All ranks use rank 0's learning rate and momentum, which change at every step."""
    model, optimizer = made()
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1 + 0.1 * rank, total_steps=12)
    first = torch.optim.SGD(network().parameters(), **values)
    its = torch.optim.lr_scheduler.OneCycleLR(first, max_lr=0.1, total_steps=12)
    plain = Plain()
    for step in range(10):
        optimizer.zero_grad()
        backward(model, batch(step))
        optimizer.step()
        scheduler.step()
        group = first.param_groups[0]
        plain.step(step, lr=group["lr"], momentum=group["momentum"])
        first.step()
        its.step()
    plain.compare(model)


def a_layer_waits_for_its_own():
    """Rank 1's backward pass stops between its two layers until rank 0 has returned from its
    backward pass and has read the updated last layer."""
    model, optimizer = made(Pair)
    plain = Plain(Pair)
    ones = torch.ones(1, 4, device=laws.device)
    # Calls kernels beforehand, because CUDA waits for the whole device when it first loads one.
    equal(plain.network.last(ones), plain.network.last(ones), "first")
    read = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], "read")
    untouched = model.module.first.weight.detach().clone()

    def until_read():
        while not os.path.exists(read):
            time.sleep(0.001)

    if rank == 1:
        model.module.between = until_read
    backward(model, batch(0))
    optimizer.step()
    plain.step(0)
    if rank == 0:
        with torch.no_grad():
            equal(model.module.last(ones), plain.network.last(ones), "last")
        if ranks > 1:
            equal(model.module.first.weight.detach(), untouched, "on its way")
        open(read, "w").close()
    plain.compare(model)


def momenta_are_state():
    model, optimizer = made()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    plain = Plain()

    def train(steps):
        for step in steps:
            optimizer.zero_grad()
            backward(model, batch(step))
            optimizer.step()
            scheduler.step()

    for step in range(7):
        plain.step(step, lr=0.1 * 0.5 ** (step // 2))
    train(range(3))
    path = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], f"across.{rank}")
    torch.save([each.state_dict() for each in (model, optimizer, scheduler)], path)
    train(range(50, 53))  # not part of the saved state
    model, optimizer = made(lr=0.7)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for each, its in zip((model, optimizer, scheduler), torch.load(path)):
        each.load_state_dict(its)
    train(range(3, 7))
    plain.compare(model)


def reading_waits():
    """`parameters()` waits for the last step's updates. `zero_grad()` does not wait for them."""
    model, optimizer = made(Pair)
    plain = Plain(Pair)
    read = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], "reset")
    if rank == ranks - 1 and ranks > 1:
        def until_reset():
            while not os.path.exists(read):
                time.sleep(0.001)
        model.module.between = until_reset
    backward(model, batch(0))
    optimizer.step()
    model.zero_grad()
    plain.step(0)
    if rank == 0:
        open(read, "w").close()
    for mine, other in zip(list(model.parameters()), plain.parameters):
        equal(mine.detach(), other.detach(), "what is read")


def a_penalty_teaches_nothing():
    """A loss that reads all parameters does not hide which are read outside their modules."""
    model, optimizer = made()
    plain = Plain(penalty=0.01)
    for step in range(4):
        optimizer.zero_grad()
        loss = model(batch(step)).square().mean() + 0.01 * squares(model.parameters())
        if rank == ranks - 1:
            time.sleep(0.05)
        loss.backward()
        optimizer.step()
        plain.step(step)
    plain.compare(model)


def loading_waits():
    """Loading waits for updates on their way, so that they do not change what is loaded."""
    model, optimizer = made(Pair)
    backward(model, batch(0))
    optimizer.step()
    loaded = laws.placed(Pair())
    model.module.load_state_dict(loaded.state_dict())
    model.wait()
    for (name, mine), other in zip(model.module.named_parameters(), loaded.parameters()):
        assert torch.equal(mine, other), name


def uneven_data():
    """Rank r has 2 + r batches, and then takes part with zeros. Rank 0 evaluates, too."""
    model, optimizer = made(Pair)
    plain = Plain(Pair)
    with model.join():
        for step in range(2 + rank):
            optimizer.zero_grad()
            backward(model, batch(step))
            optimizer.step()
            if rank == 0:
                with torch.no_grad():
                    model(batch(7))
    backward(model, batch(9))
    for step in range(1 + ranks):
        plain.step(step, of=range(max(0, step - 1), ranks))
    plain.step(9)
    plain.compare(model)


def signs_times_their_root_mean_square(values, parts):
    """Returns the signs, times the root mean square of each part, and the residual."""
    coded = torch.cat([each.square().mean().sqrt().expand_as(each).copysign(each)
                       for each in values.split(parts)])
    return coded, values - coded


def parts_of_one_magnitude(values):
    """Returns the lengths of runs of neighbours whose magnitudes are equal."""
    sizes = values.abs()
    ends = [i for i in range(1, len(sizes)) if abs(sizes[i] / sizes[i - 1] - 1) > 1e-3]
    return [end - begin for begin, end in zip([0, *ends], [*ends, len(sizes)])]


def momenta_of_a_bit():
    """Tang et al., "1-bit Adam": three dense steps of Adam, then momenta compressed to signs, with
    mean squares frozen. Workers and owners add their residuals to the next step's. The first such
    step shows which part of a tensor, an owner's, each scale belongs to."""
    rate, frozen, keep, keep_squares, epsilon = 0.01, 3, 0.9, 0.999, 1e-6
    module, plain = network(Pair), network(Pair).double()
    optimizer = tutti_torch.OneBitAdam(module.parameters(), rate, (keep, keep_squares), epsilon,
                                       freeze_step=frozen)
    model = laws.ours(module, strategy=laws.momenta, optimizer=optimizer)
    mine = list(module.parameters())
    theirs = list(plain.parameters())
    m, v, kept, lost, parts = ([None] * len(mine) for _ in range(5))
    for step in range(frozen + 6):
        before = [each.detach().double().flatten() for each in mine]
        optimizer.zero_grad()
        backward(model, batch(step))
        optimizer.step()
        model.wait()
        gradients = []
        for each in range(ranks):
            plain.zero_grad()
            plain(batch(step, each).double()).square().mean().backward()
            gradients.append([its.grad.flatten().clone() for its in theirs])
        for i, its in enumerate(theirs):
            of_ranks = [each[i] for each in gradients]
            if step < frozen:
                mean = sum(of_ranks) / ranks
                m[i] = (1 - keep) * mean + (keep * m[i] if step else 0)
                v[i] = (1 - keep_squares) * mean.square() + (keep_squares * v[i] if step else 0)
            else:
                if step == frozen:
                    moved = before[i] - mine[i].detach().double().flatten()
                    parts[i] = parts_of_one_magnitude(moved * (v[i].sqrt() + epsilon))
                    assert len(parts[i]) <= ranks, f"{parts[i]} of {tuple(its.shape)}"
                    kept[i], lost[i] = [torch.zeros_like(m[i])] * ranks, torch.zeros_like(m[i])
                coded = [signs_times_their_root_mean_square(
                    keep * m[i] + (1 - keep) * one + left, parts[i])
                    for one, left in zip(of_ranks, kept[i])]
                kept[i] = [left for _, left in coded]
                m[i], lost[i] = signs_times_their_root_mean_square(
                    sum(code for code, _ in coded) / ranks + lost[i], parts[i])
            with torch.no_grad():
                its.sub_((rate * m[i] / (v[i].sqrt() + epsilon)).view_as(its))
            assert torch.allclose(mine[i].double(), its, 1e-4, 1e-5), f"step {step}, {its.shape}"


def optimizers():
    for sentence, named in (("has no nesterov", {"nesterov": True}),
                            ("has no maximize", {"maximize": True}),
                            ("has no dampening", {"dampening": 0.1}),
                            ("weight_decay is nan", {"weight_decay": float("nan")})):
        refused(sentence, lambda: made(**named))
    module = network()
    refused("like Adam", lambda: wrapped(module, torch.optim.Adam(module.parameters())))
    refused("lacks read.weight",
            lambda: wrapped(module, torch.optim.SGD(module.first.parameters(), lr=0.1)))
    refused("the model does not have",
            lambda: wrapped(module, torch.optim.SGD(
                [*module.parameters(), *network().parameters()], lr=0.1)))
    groups = [{"params": module.first.parameters()},
              {"params": [each for name, each in module.named_parameters() if "first" not in name],
               "weight_decay": 0.1}]
    refused("differ in weight_decay", lambda: wrapped(module, torch.optim.SGD(groups, lr=0.1)))
    refused("find_unused_parameters leaves unused ones alone",
            lambda: wrapped(module, torch.optim.SGD(module.parameters(), lr=0.1),
                            find_unused_parameters=True))
    for wrong in (-1, 2.5):
        refused("freeze_step cannot be", lambda: laws.ours(
            module, strategy=laws.momenta,
            optimizer=tutti_torch.OneBitAdam(module.parameters(), freeze_step=wrong)))
    module.to(torch.bfloat16)
    refused("16-bit elements", lambda: wrapped(module, torch.optim.SGD(module.parameters(), lr=0.1)))


def loops():
    """Loops that would see a gradient or parameter at another time than under torch are refused."""
    def begun():
        model, optimizer = made()
        backward(model, batch(0))
        return model, optimizer

    model, optimizer = begun()
    refused("this gradient is on its way",
            lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    refused("this gradient is on its way", lambda: model.module.last.weight.grad.mul_(0.5))
    refused("step(closure)", lambda: optimizer.step(lambda: None))
    refused("step() was not called", lambda: model(batch(1)))
    optimizer.param_groups[0]["lr"] = 0.2
    refused("values were changed between", optimizer.step)

    model, optimizer = begun()
    optimizer.step()
    refused("follows no backward pass", optimizer.step)
    refused("without a forward pass", lambda: model.module(batch(0)).sum().backward())
    refused("no longer requires", lambda: model.module.requires_grad_(False) and model(batch(1)))

    model, optimizer = begun()
    optimizer.step()
    loss = (model(batch(0)) + model.module.unused.weight.sum()).sum()
    refused("unused.weight has a gradient", loss.backward)

    model, optimizer = begun()
    optimizer.step()
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    refused("the model does not have", lambda: model(batch(1)))

    model, optimizer = begun()
    optimizer.step()
    model.wait()
    (model(batch(0)) + model.module.unused.weight.sum()).sum().backward()

    model, optimizer = made(Scaled)
    plain = Plain(Scaled)
    for step in range(3):  # step() resets gradients, too
        backward(model, batch(step))
        optimizer.step()
        plain.step(step)
    plain.compare(model)

    model, optimizer = made(Detached)
    try:
        model(batch(0)).sum().backward()
        raise AssertionError("the backward pass has read an updated parameter")
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)

    model, optimizer = made(momentum=0.0)
    optimizer.param_groups[0]["momentum"] = 0.9
    refused("made with room for 0", lambda: backward(model, batch(0)))


laws.run([a_loop_of_torchs, rank_0_evaluates_alone, torchs_recurrence, schedules_of_rank_0,
          a_layer_waits_for_its_own, momenta_are_state, momenta_of_a_bit, reading_waits,
          loading_waits, a_penalty_teaches_nothing, uneven_data, optimizers, loops])
