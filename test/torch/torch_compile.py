"""Tests that a module which torch.compile compiles, before or after it is wrapped, is compiled once
and trained as without compilation. The backend used here traces code, but does not generate any."""

import sys

import torch

import laws
from laws import equal, rank

if not hasattr(torch, "compiler"):
    if rank == 0:
        print(f"torch {torch.__version__} compiles no models: skipped")
    sys.exit(77)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.last = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())


def untouched(module):
    return module


def compiled(module):
    return torch.compile(module, backend="aot_eager")


def trained(crosses, before=untouched, after=untouched):
    """Returns the parameters after some steps. From the third step on, a recompilation fails."""
    torch._dynamo.reset()
    torch.manual_seed(3)
    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    wrapped = laws.ours(before(network), **(
        {"strategy": laws.crossing, "optimizer": optimizer} if crosses else {}))
    model = after(wrapped)
    numbers = torch.Generator().manual_seed(rank)
    for step in range(5):
        torch._dynamo.config.error_on_recompile = step > 1
        optimizer.zero_grad(set_to_none=True)
        if step % 2 == 1:
            with wrapped.no_sync():
                model(torch.randn(8, 6, generator=numbers)).square().mean().backward()
        model(torch.randn(8, 6, generator=numbers)).square().mean().backward()
        optimizer.step()
    wrapped.wait()
    return torch.cat([each.detach().flatten() for each in network.parameters()])


def it_trains_alike():
    for crosses in (False, True):
        wanted = trained(crosses)
        equal(trained(crosses, before=compiled), wanted, "compiled before it is wrapped")
        equal(trained(crosses, after=compiled), wanted, "compiled after it is wrapped")


laws.run([it_trains_alike])
