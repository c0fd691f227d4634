"""Most cases train a model twice in one process, under DistributedDataParallel over gloo and under
tutti. Autograd must leave equal gradients, so that everything computed from them is equal, too."""

import contextlib
import dataclasses
import os
import threading

import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

import laws
from laws import device, equal, ours, rank, ranks, theirs


class Everything(torch.nn.Module):
    """A network with a convolution in two memory formats, batch norm, and parameters that are
    shared, frozen, used by no rank, and used by rank 0 only."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 6, 3).to(memory_format=torch.channels_last)
        self.norm = torch.nn.BatchNorm2d(6)
        self.hidden = torch.nn.Linear(6, 6)
        self.shared = self.hidden
        self.frozen = torch.nn.Linear(6, 6).requires_grad_(False)
        self.unused = torch.nn.Linear(4, 4)
        self.sometimes = torch.nn.Linear(6, 6)
        self.last = torch.nn.Linear(6, 5)

    def forward(self, images):
        x = self.norm(self.convolution(images)).relu().mean((2, 3))
        x = self.shared(self.hidden(x).relu())
        x = self.frozen(x)
        if rank == 0:
            x = self.sometimes(x)
        return {"scores": [self.last(x)]}


def batches(count):
    made = torch.Generator().manual_seed(100 + rank)
    for _ in range(count):
        yield (torch.randn(8, 3, 6, 6, generator=made).to(device),
               torch.randint(5, (8,), generator=made).to(device))


def loss_of(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0])["scores"][0], batch[1])


def made(kind, wrap, **named):
    torch.manual_seed(7 + rank)  # ranks differ until they take rank 0's parameters
    model = wrap(kind(), **named)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    return model, optimizer


def compare(train):
    """Expects that `train(wrap)` returns equal values, by name, for `theirs` and `ours`."""
    wanted = train(theirs)
    for name, value in train(ours).items():
        equal(value, wanted[name], name)


def state(model):
    return {name: each.detach().clone() for name, each in model.module.named_parameters()} | {
        name: each.detach().clone().float() for name, each in model.module.named_buffers()}


def a_hundred_steps():
    """One pass in three is only added to the next. Resets to zeros and to None take turns. Ranks
    differ in who drives communication."""
    def train(wrap):
        of_tutti = {"options": {"run.progress": ("caller", "thread")[rank % 2]}} if wrap is ours else {}
        model, optimizer = made(Everything, wrap, find_unused_parameters=True, **of_tutti)
        losses, means = [], []
        for step, batch in enumerate(batches(100)):
            with model.no_sync() if step % 3 == 1 else contextlib.nullcontext():
                loss = loss_of(model, batch)
                loss.backward()
            losses.append(loss.item())
            # Each rank's own until its buffers are replaced by rank 0's.
            means.append(model.module.norm.running_mean.sum().item())
            if step % 3 != 1:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.7)
                optimizer.step()
                optimizer.zero_grad(set_to_none=step % 2 == 0)
        assert model.module.unused.weight.grad is None or step % 2 != 0
        return {"losses": losses, "means": means} | state(model)

    compare(train)


def gradients_lie_in_the_arena():
    """They have the strides of their parameters, and return to the arena after a reset to None."""
    model, optimizer = made(Everything, ours)
    places = None
    for batch in batches(3):
        loss_of(model, batch).backward()
        trained = [each for each in model.parameters() if each.requires_grad]
        now = [each.grad.data_ptr() for each in trained]
        assert places is None or places == now
        places = now
        assert all(each.grad.stride() == each.stride() for each in trained)
        optimizer.zero_grad(set_to_none=True)
    arena = sum(each.numel() for each in trained) * 4
    assert max(places) - min(places) < arena


def wrapped_without_gradients():
    """A model that is wrapped under no_grad trains like any other."""
    def train(wrap):
        with torch.no_grad():
            model, _ = made(lambda: torch.nn.Linear(5, 2), wrap)
        model(torch.ones(3, 5, device=device) * rank).square().sum().backward()
        return {"gradient": model.module.weight.grad}

    compare(train)


def evaluation_in_between():
    """A pass without gradients between a forward pass and its backward pass changes nothing."""
    def train(wrap):
        model, optimizer = made(Everything, wrap, find_unused_parameters=True,
                                broadcast_buffers=False)
        for batch in batches(4):
            loss = loss_of(model, batch)
            model.eval()
            with torch.no_grad():
                model(batch[0] + rank)
            model.train()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return state(model)

    compare(train)


def what_is_kept_stays():
    """Code that keeps a `.grad` beyond a reset finds its values unchanged after later passes, even
    if these do not reach the parameter."""
    def train(wrap):
        model, _ = made(Chosen, wrap, find_unused_parameters=True)
        kept = []
        for step, chosen in enumerate(([0, 1], [0], [0, 1, 2], [0, 2])):
            model(torch.ones(3, device=device) * (rank + 1 + step), chosen)[0].backward()
            kept.append([each.grad for each in model.module.parameters()])
            model.zero_grad(set_to_none=True)
        return {f"{i} of step {step}": torch.zeros(0) if each is None else each
                for step, gradients in enumerate(kept) for i, each in enumerate(gradients)}

    compare(train)


class Chosen(torch.nn.Module):
    """A network in which each batch names the weights that it uses. It also returns a weight."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(3)) for _ in range(3))

    def forward(self, x, chosen):
        return sum((self.weights[each] * x).sum() for each in chosen), self.weights[0]


def kept_gradients():
    """A loop that never resets gradients adds them up. The earlier gradient of a parameter that a
    rank has not used still counts in the mean. If no rank has used the parameter, each rank keeps
    its own gradient."""
    def train(wrap):
        model, _ = made(Chosen, wrap, find_unused_parameters=True)
        seen = {}
        for step in range(5):
            chosen = [0, 1, 2] if step == 0 else [0, 1] if rank == step % 2 else [0]
            model(torch.ones(3, device=device) * (rank + 1 + step), chosen)[0].backward()
            for i, each in enumerate(model.module.weights):
                seen[f"{i} in step {step}"] = each.grad.clone()
                each.grad.add_(rank)
        return seen

    compare(train)


def a_parameter_that_is_answered():
    """Hooks on a parameter or an input that the forward pass returns do not pile up over passes."""
    model, _ = made(Chosen, ours)
    model.module.forward = lambda x: (model.module.weights[0] * x, model.module.weights[0], x)
    x = torch.ones(3, device=device, requires_grad=True)
    for _ in range(4):
        sum(model(x)).sum().backward()
        for each in (model.module.weights[0], x):
            assert len(each._backward_hooks or ()) <= 1, each._backward_hooks


@dataclasses.dataclass
class Scores:
    first: torch.Tensor
    second: torch.Tensor


class Scored(torch.nn.Linear):
    """A layer whose output is of a class of its own."""

    def forward(self, x):
        return Scores(super().forward(x), super().forward(x.square()))


def two_backward_passes_of_an_output():
    """Each is averaged, also if the forward pass returns a dataclass."""
    model, _ = made(lambda: Scored(5, 2), ours)
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(rank)).to(device)
    scores = model.module(x)
    alone = torch.autograd.grad((scores.first.square() + scores.second).sum(), model.module.weight)
    scores = model(x)
    scores.first.square().sum().backward(retain_graph=True)
    scores.second.sum().backward()
    mean = sum(laws.of_every_rank(alone[0])) / ranks
    assert torch.allclose(model.module.weight.grad.cpu(), mean, 1e-4, 1e-5)


class Recomputed(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first = torch.nn.Linear(5, 5)
        self.parts = torch.nn.ModuleList(torch.nn.Linear(5, 5) for _ in range(3))
        self.reentrant = reentrant

    def forward(self, x):
        x = self.first(x)
        for part in self.parts:
            x = checkpoint(part, x, use_reentrant=self.reentrant)
        return x


def gradients_of_inputs():
    """An adversarial attack computes gradients of the loss with respect to inputs. Ranks exchange
    nothing for them, however often a rank computes them."""
    def train(wrap):
        model, optimizer = made(
            lambda: torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 3)), wrap)
        for images, _ in batches(3):
            inputs = images.flatten(1)[:, :6].clone().requires_grad_()
            for _ in range(2 + rank):
                (slopes,) = torch.autograd.grad(model(inputs).square().sum(), inputs)
                inputs = (inputs + 0.1 * slopes.sign()).detach().requires_grad_()
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
        return state(model)
    compare(train)


def activation_checkpointing():
    for reentrant in (True, False):
        def train(wrap):
            model, optimizer = made(lambda: Recomputed(reentrant), wrap)
            numbers = torch.Generator().manual_seed(rank)
            for _ in range(4):
                model(torch.randn(3, 5, generator=numbers).to(device)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            if wrap is ours:  # a nested backward pass is not a step
                assert model.get_extra_state()["steps"] == 4
            return state(model)

        compare(train)


def two_models():
    """The two models of a GAN. A backward pass of the maker leads through the critic, whose
    gradients are thrown away."""
    def train(wrap):
        maker, its = made(lambda: torch.nn.Linear(3, 4), wrap)
        critic, whose = made(lambda: torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(),
                                                         torch.nn.Linear(6, 1)), wrap)
        numbers = torch.Generator().manual_seed(rank)
        for _ in range(10):
            noise, real = (torch.randn(6, n, generator=numbers).to(device) for n in (3, 4))
            whose.zero_grad()
            (critic(maker(noise).detach()).mean() - critic(real).mean()).backward()
            whose.step()
            its.zero_grad()
            (-critic(maker(noise)).mean()).backward()
            its.step()
        return {f"maker.{name}": each for name, each in state(maker).items()} | state(critic)

    compare(train)


def a_part_of_two_models():
    """Two models share a layer. A pass of one model does not count as a pass of the other, whose
    forward was not called."""
    def train(wrap):
        torch.manual_seed(5)
        part = torch.nn.Linear(5, 5)
        models = [made(lambda: torch.nn.Sequential(part, torch.nn.Linear(5, 2)), wrap)[0]
                  for _ in range(2)]
        numbers = torch.Generator().manual_seed(rank)
        seen = {}
        for step, which in enumerate((0, 1, 0, 0, 1)):
            for model in models:
                model.zero_grad(set_to_none=True)
            inputs = torch.randn(3, 5, generator=numbers).to(device)
            models[which](inputs).square().sum().backward()
            for i, model in enumerate(models):
                for name, each in model.module.named_parameters():
                    its = torch.zeros(0) if each.grad is None else each.grad.clone()
                    seen[f"{name} of model {i} in step {step}"] = its
        return seen

    compare(train)


def a_pass_inside_no_sync_before_the_backward_pass():
    """The first backward pass after a forward pass outside no_sync averages gradients, also if a
    forward pass inside no_sync lies between them."""
    def train(wrap):
        model, _ = made(lambda: torch.nn.Linear(5, 2), wrap)
        numbers = torch.Generator().manual_seed(rank)
        seen = {}
        for step in range(4):
            first, other = torch.randn(2, 3, 5, generator=numbers).to(device)
            loss = model(first).square().sum()
            with model.no_sync():
                local = model(other).square().sum()
            (loss + local if step % 2 == 0 else loss).backward()
            seen[f"averaged in step {step}"] = model.module.weight.grad.clone()
            if step % 2 == 1:
                local.backward()
                seen[f"added in step {step}"] = model.module.weight.grad.clone()
        return seen

    compare(train)


def uneven_data():
    """Rank r has 3 + 2r batches. A rank that has none left still takes part, and ends with the
    model of a rank that had the most."""
    def train(wrap):
        model, optimizer = made(Everything, wrap, find_unused_parameters=True)
        with model.join(divide_by_initial_world_size=True, enable=True):
            for batch in batches(3 + 2 * rank):
                loss_of(model, batch).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
        return state(model)

    compare(train)

    def train_as_many(wrap):
        model, optimizer = made(Everything, wrap, find_unused_parameters=True)
        with model.join(enable=False):
            for batch in batches(2):
                loss_of(model, batch).backward()
                optimizer.step()
                optimizer.zero_grad()
        return state(model)

    compare(train_as_many)


class Product(torch.nn.Module):
    """A network that multiplies element by element, because not every host can multiply 16-bit
    matrices."""

    def __init__(self, type_):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(40).to(type_))
        self.other = torch.nn.Parameter(torch.randn(40))

    def forward(self, x):
        return (self.weight * x.to(self.weight.dtype)).float() * self.other


def sixteen_bits():
    """Gradients of 16 bits are added as floats and rounded once."""
    for type_ in (torch.bfloat16, torch.float16):
        model, _ = made(lambda: Product(type_), ours)
        equal(model.module.weight.detach().float(), of_rank_0(model.module.weight), "the parameter")
        x = torch.randn(40, generator=torch.Generator().manual_seed(rank)).to(device)
        alone = torch.autograd.grad(model.module(x).square().sum(), model.module.weight)[0]
        assert alone.dtype == type_
        total = sum(each for each in laws.of_every_rank(alone.float()))
        model(x).square().sum().backward()
        mean = (total * (1 / ranks)).to(type_)
        assert torch.equal(model.module.weight.grad.cpu(), mean), f"{type_}"
        assert model.module.weight.grad.dtype == type_


def of_rank_0(value):
    return laws.of_every_rank(value.detach().float())[0]


def others_run_while_it_waits():
    """While rank 0's main thread waits for rank 1, another thread of rank 0 runs. Rank 1 waits for
    that thread."""
    model, _ = made(lambda: torch.nn.Linear(2, 2), ours)
    loss = model(torch.ones(1, 2, device=device)).sum()
    said = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], "went")
    if rank == 0:
        def speak():
            open(said, "w").close()
        later = threading.Timer(0.3, speak)
        later.start()
    elif rank == 1:
        while not os.path.exists(said):
            pass
    loss.backward()
    dist.barrier()


laws.run([a_hundred_steps, gradients_lie_in_the_arena, what_is_kept_stays, kept_gradients,
          a_parameter_that_is_answered, two_backward_passes_of_an_output,
          wrapped_without_gradients, evaluation_in_between,
          gradients_of_inputs, activation_checkpointing, two_models, a_part_of_two_models,
          a_pass_inside_no_sync_before_the_backward_pass, uneven_data, sixteen_bits,
          others_run_while_it_waits])
