"""Tests that a compressor's residuals are state of the model: saved, loaded and never infinite."""

import os

import torch

import laws
from laws import device, equal, of_every_rank, ours, rank, ranks, refused


def made(seed=3, **named):
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.Tanh(), torch.nn.Linear(30, 2))
    model = ours(network, **laws.remembering, options={"compression.density": 0.05}, **named)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def batch(step):
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(31 * step + rank)).to(device)


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        loss = model(batch(step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def residuals(model):
    return torch.cat(model.get_extra_state()["memories"])


def nothing_is_lost():
    """Contributed = applied + residuals: those of gradients at workers, and of means at owners."""
    model, _ = made()
    contributed = applied = 0
    for step in range(5):
        mine = torch.autograd.grad(model.module(batch(step)).square().mean(), model.module.parameters())
        contributed = contributed + sum(each.sum() for each in mine)
        model(batch(step)).square().mean().backward()
        applied = applied + sum(each.grad.sum() for each in model.parameters()) * ranks
        model.zero_grad(set_to_none=True)
    everybodys = sum(of_every_rank(contributed.reshape(1)))
    of_gradients, of_means, *_ = model.get_extra_state()["memories"]
    kept = sum(of_every_rank((of_gradients.sum() + ranks * of_means.sum()).reshape(1)))
    assert kept.abs() > 1e-3, "nothing was left out, so that nothing was tested"
    applied = applied.cpu()
    assert torch.allclose(everybodys, applied + kept, 1e-4, 1e-4), (everybodys, applied, kept)


def a_replan_loses_nothing():
    """At a density of 1, all residuals arrive with the next gradient. Back at the first density, as
    much is left out as at the start."""
    model, _ = made()
    contributed = applied = 0
    for step, density in enumerate([None, None, 1.0, 0.05, 0.05]):
        if density is not None:
            model.replan({"compression.density": density})
        mine = torch.autograd.grad(model.module(batch(step)).square().mean(), model.module.parameters())
        contributed = contributed + torch.cat([each.flatten() for each in mine])
        model(batch(step)).square().mean().backward()
        means = torch.cat([each.grad.flatten() for each in model.parameters()])
        applied = applied + means * ranks
        model.zero_grad(set_to_none=True)
        if density == 1.0:
            assert residuals(model).count_nonzero() == 0
            everybodys = sum(of_every_rank(contributed))
            assert torch.allclose(everybodys, applied.cpu(), 1e-4, 1e-5), (everybodys, applied)
        else:
            assert means.count_nonzero() < means.numel() / 2 and residuals(model).abs().max() > 1e-3
    refused("this strategy has no option", lambda: model.replan({"compression.destiny": 0.1}))
    refused("run.deadline is fixed", lambda: model.replan({"run.deadline": 3.0}))
    refused("run.progress is fixed", lambda: model.replan({"run.progress": "thread"}))
    refused("density must be above 0", lambda: model.replan({"compression.density": 2.0}))


def ranks_must_replan_alike():
    model, _ = made()
    other = {"compression.density": 0.1 + rank / 10}
    refused("is 0.1 on rank 0 and 0.2 on rank 1", lambda: model.replan(other))
    model._close()


def resumed_is_uninterrupted():
    model, optimizer = made()
    train(model, optimizer, range(4))
    path = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], f"state.{rank}")
    torch.save((model.state_dict(), optimizer.state_dict()), path)
    wanted = train(model, optimizer, range(4, 9))

    again, its = made(seed=99)
    before, of_its = torch.load(path)
    again.load_state_dict(before)
    its.load_state_dict(of_its)
    assert train(again, its, range(4, 9)) == wanted
    for mine, other in zip(again.parameters(), model.parameters()):
        assert torch.equal(mine, other)
    assert torch.equal(residuals(again), residuals(model))

    other, _ = made()
    without = dict(before)
    without["_extra_state"] = dict(without["_extra_state"], memories=[
        torch.zeros_like(each) for each in without["_extra_state"]["memories"]])
    other.load_state_dict(without)
    assert train(other, torch.optim.Adam(other.parameters(), lr=0.01), range(4, 9)) != wanted


def residuals_follow_the_rate():
    """Residuals that are steps are measured in those of the rate with which they were saved, whatever
    rate the model that loads them was wrapped with."""
    def made_by(rate):
        torch.manual_seed(3)
        network = torch.nn.Linear(8, 30)
        optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
        model = ours(network, strategy="strategies::EFSignSGD", optimizer=optimizer)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def trained(model, optimizer, scheduler, steps):
        for step in steps:
            model(batch(step)).square().mean().backward()
            optimizer.step()
            scheduler.step()
        return [each.detach().clone() for each in model.parameters()]

    first = made_by(0.5)
    trained(*first, range(3))
    path = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], f"rate.{rank}")
    torch.save([each.state_dict() for each in first], path)
    wanted = trained(*first, range(3, 8))
    for again in (made_by(0.125), first):
        for each, its in zip(again, torch.load(path)):
            each.load_state_dict(its)
        for mine, other in zip(trained(*again, range(3, 8)), wanted):
            assert torch.equal(mine, other), (mine, other)


class Scaler:
    """Does what torch.amp.GradScaler does, which before torch 2.3 works only on CUDA."""

    def __init__(self, scale):
        self.scale = scale
        self.finite = 0

    def get_scale(self):
        return self.scale

    def scaled(self, loss):
        return loss * self.scale

    def step(self, optimizer):
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"]]
        if all(torch.isfinite(each).all() for each in gradients):
            for each in gradients:
                each.div_(self.scale)
            optimizer.step()
            self.finite += 1
            self.scale *= 2.0 if self.finite % 2 == 0 else 1.0
        else:
            assert not any(torch.isfinite(each).any() for each in gradients), "for some rank alone"
            self.scale /= 8


def torchs_own(scale):
    class Own(torch.amp.GradScaler):
        def scaled(self, loss):
            return self.scale(loss)

        def step(self, optimizer):
            super().step(optimizer)
            self.update()
    return Own("cpu", init_scale=scale, backoff_factor=1 / 8, growth_interval=2)


scalers = [Scaler, torchs_own] if hasattr(torch.amp, "GradScaler") else [Scaler]
if len(scalers) == 1 and rank == 0:
    print(f"torch {torch.__version__} scales nothing on a CPU: its own GradScaler is skipped")


def unscaled(model):
    return residuals(model) / model.get_extra_state()["scale"]


def overflowing(model, optimizer, scaler, told):
    """Trains the steps in `told`. In a step of None, the last rank's gradient overflows."""
    for step in told:
        before = unscaled(model), scaler.get_scale()
        scale = float("inf") if step is None and rank == ranks - 1 else 1.0
        scaler.scaled(model(batch(step or 0)).square().mean() * scale).backward()
        scaler.step(optimizer)
        optimizer.zero_grad(set_to_none=True)
        if step is None:
            assert scaler.get_scale() < before[1], "nobody skipped a step"
            assert model._scaler is None or torch.equal(unscaled(model), before[0])


def skipped_steps_change_nothing():
    """Steps that a scaler skips, and its scale, change neither parameters nor residuals."""
    for scaler_of in scalers:
        nothing_changes_in_steps_skipped_by(scaler_of(2.0 ** 13))


def nothing_changes_in_steps_skipped_by(scaler):
    model, optimizer = made(scaler=scaler)
    overflowing(model, optimizer, scaler, [None, 0, None, 1, 2, None, None, 3, None])
    assert torch.isfinite(unscaled(model)).all() and unscaled(model).abs().max() > 1e-3
    undisturbed, its = made()
    train(undisturbed, its, range(4))
    for mine, other in zip(model.parameters(), undisturbed.parameters()):
        assert torch.equal(mine, other)
    scale = model.get_extra_state()["scale"]
    assert scale != 1 and torch.equal(unscaled(model), residuals(undisturbed))

    again, optimizer = made(scaler=scaler)
    again.set_extra_state(model.get_extra_state())
    assert torch.equal(residuals(again), residuals(model))
    assert scaler.get_scale() != scale, "the last step was skipped"
    again(batch(0))
    assert torch.equal(residuals(again), residuals(model) * (scaler.get_scale() / scale))


def an_overflow_is_one_without_a_scaler_too():
    model, optimizer = made()
    train(model, optimizer, range(2))
    overflowing(model, optimizer, Scaler(1.0), [None])
    assert torch.isfinite(residuals(model)).all()
    train(model, optimizer, range(3, 6))
    assert all(torch.isfinite(each).all() for each in model.parameters())
    for name, each in model.module.named_parameters():
        equal(each.detach(), of_every_rank(each.detach())[0], name)


class Normed(torch.nn.Module):
    """A network with a layer that only some batches use, and buffers that count batches."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
        self.sometimes = torch.nn.Linear(8, 8)

    def forward(self, x, uses=True):
        x = self.norm(x)
        return self.sometimes(x) if uses else x


def rank_0_evaluates_alone():
    """Evaluation on rank 0, with gradients or without, changes neither scale nor buffers of the
    passes that train."""
    def trained(evaluates):
        torch.manual_seed(4)
        scaler = Scaler(2.0 ** 6)
        model = ours(Normed(), **laws.remembering, scaler=scaler)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            overflowing(model, optimizer, scaler, [None if step == 3 else step])
            model.eval()
            with torch.set_grad_enabled(step % 2 == 0):
                for _ in range(2 if evaluates else 0):
                    model(batch(9))
            model.train()
        model(batch(9))
        return [each.detach() for each in (*model.module.parameters(), *model.module.buffers())]

    for mine, other in zip(trained(rank == 0), trained(False)):
        assert torch.equal(mine, other), (mine, other)


def what_no_rank_uses_is_not_remembered():
    """The old gradient of a parameter that no rank uses is not sent, does not enter residuals, and
    stays as it is."""
    model = ours(Normed(), **laws.remembering, find_unused_parameters=True,
                 options={"compression.density": 1.0})
    unused = list(model.module.sometimes.parameters())
    model(batch(0)).square().mean().backward()
    before = [each.grad.clone() for each in unused]
    model.replan({"compression.density": 0.05})
    model(batch(1), False).square().mean().backward()
    used = sum(each.numel() for each in model.module.norm.parameters())
    assert residuals(model).count_nonzero() <= 2 * used, residuals(model)
    for each, old in zip(unused, before):
        assert torch.equal(each.grad, old), (each.grad, old)


def what_no_rank_uses_is_not_lost(of=laws.remembering):
    """Contributed = applied + residuals, even if later passes do not use a parameter whose gradient
    was sent in part. Their zeros could bring the rest, in a mean that no `.grad` shows."""
    model = ours(Normed(), **of, find_unused_parameters=True, options={"compression.density": 0.05})
    names = list(dict(model.module.named_parameters()))
    contributed = applied = torch.zeros(len(names))
    for step, uses in enumerate([True, False, False, True, False]):
        model.zero_grad(set_to_none=True)
        mine = torch.autograd.grad(model.module(batch(step), uses).square().mean(),
                                   model.module.parameters(), allow_unused=True)
        contributed = contributed + sums(mine)
        model(batch(step), uses).square().mean().backward()
        applied = applied + sums([each.grad for each in model.parameters()]) * ranks
    of_gradients, of_means, *late = model.get_extra_state()["memories"]
    under_way = sum(each.sum() for each in late)
    everybodys = sum(of_every_rank(contributed)).sum()
    kept = sum(of_every_rank((of_gradients.sum() + ranks * of_means.sum()).reshape(1)))
    kept = kept + ranks * under_way
    assert kept.abs() > 1e-3, "nothing was left out, so that nothing was tested"
    assert torch.allclose(everybodys, applied.sum() + kept, 1e-4, 1e-4), (everybodys, applied, kept)


def sums(gradients):
    return torch.tensor([0.0 if each is None else each.sum().item() for each in gradients])


def a_mean_of_the_step_before_is_seen():
    """If means arrive a step late, they are seen even if this step's pass does not use the
    parameter."""
    what_no_rank_uses_is_not_lost(laws.late)


class Twins(torch.nn.Module):
    """Two parameters whose gradients autograd leaves in the same memory. A mean that is written
    there while autograd still computes would be taken for a gradient."""

    def __init__(self):
        super().__init__()
        self.flat = torch.nn.Parameter(torch.randn(6))
        self.tall = torch.nn.Parameter(torch.randn(3, 2))

    def forward(self, factor):
        return (self.flat.view(2, 3) + self.tall.view(2, 3)) * factor


def gradients_in_one_memory_are_two():
    model = ours(Twins(), **laws.remembering, options={"compression.density": 1.0})
    for step in range(3):
        factor = batch(step)[:2, :3]
        expected = sum(of_every_rank(factor)) / ranks
        model(factor).sum().backward()
        for each in model.parameters():
            equal(each.grad, expected.reshape(each.shape), f"step {step}")
        model.zero_grad(set_to_none=True)


def others_state_is_refused():
    model, _ = made()
    train(model, torch.optim.Adam(model.parameters()), range(1))
    state = model.get_extra_state()
    refused(f"residuals of rank {rank + 1} of {ranks}",
            lambda: model.set_extra_state(dict(state, rank=rank + 1)))
    refused("the state is of strategies::BSP, but",
            lambda: model.set_extra_state(dict(state, strategy="strategies::BSP")))
    refused("this state is of another strategy, model or optimizer", lambda: model.set_extra_state(dict(state, memories=[])))
    refused("rank 0 loads a state of step 1, but rank 1 one of step 2",
            lambda: model.set_extra_state(dict(state, steps=1 + rank)))
    model.set_extra_state(state)
    train(model, torch.optim.Adam(model.parameters()), range(1, 2))
    refused("no option compression.width",
            lambda: model.set_extra_state(dict(state, options={"compression.width": 1})))


def a_scaler_is_refused():
    model, _ = made(scaler=Scaler(2.0 ** 13))
    refused("on a GPU residuals are neither rescaled with the loss nor restored", lambda: model(batch(0)))
    model._close()


of_scalers = ([skipped_steps_change_nothing, rank_0_evaluates_alone] if device == "cpu" else
              [a_scaler_is_refused])
laws.run([nothing_is_lost, a_replan_loses_nothing, ranks_must_replan_alike,
          resumed_is_uninterrupted, residuals_follow_the_rate, *of_scalers,
          gradients_in_one_memory_are_two, an_overflow_is_one_without_a_scaler_too,
          what_no_rank_uses_is_not_remembered,
          what_no_rank_uses_is_not_lost, a_mean_of_the_step_before_is_seen, others_state_is_refused])
