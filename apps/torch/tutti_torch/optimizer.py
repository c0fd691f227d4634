"""Lets tutti carry out an optimizer of torch's: each parameter is updated when its mean arrives."""

import types
import weakref

import torch



class OneBitAdam(torch.optim.Optimizer):
    """1-bit Adam, which tutti carries out under strategies::OneBitAdam: `freeze_step` steps of Adam
    with dense gradients, then momenta compressed to one bit an element."""

    def __init__(self, parameters, lr=0.001, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0,
                 freeze_step=100_000):
        super().__init__(parameters, {"lr": lr, "beta1": betas[0], "beta2": betas[1], "eps": eps,
                                      "weight_decay": weight_decay, "freeze_step": freeze_step})

    def step(self, closure=None):
        raise RuntimeError("torch has no 1-bit Adam. Fix: tutti_torch.DataParallel(model, "
                           "\"strategies::OneBitAdam\", optimizer=it)")


# For each optimizer of torch's: tutti's type, its values with their names in param_groups, and
# torch's values that tutti's type lacks.
_known = {
    OneBitAdam: ("optimizer::one_bit_adam",
                 {"learning_rate": "lr", "beta1": "beta1", "beta2": "beta2", "epsilon": "eps",
                  "weight_decay": "weight_decay", "freeze_step": "freeze_step"}, ()),
    torch.optim.SGD: ("optimizer::sgd",
                      {"learning_rate": "lr", "momentum": "momentum",
                       "weight_decay": "weight_decay"},
                      ("dampening", "nesterov", "maximize", "foreach", "differentiable", "fused")),
}


class OnItsWay(torch.Tensor):
    """The value of `.grad` from backward() to step(). It can be reset; reading it raises an
    error."""

    @classmethod
    def __torch_function__(cls, function, types_, arguments=(), named=None):
        if function == torch.Tensor.grad_fn.__get__:
            return None
        if function in (torch.Tensor.zero_, torch.Tensor.detach_, torch.Tensor.requires_grad_):
            return arguments[0]
        raise RuntimeError("this gradient is on its way, and tutti updates its parameter when "
                           "its mean arrives, so nobody can read or scale it. Fix: train without "
                           "optimizer=, or without clipping and GradScaler")


def on_its_way(parameter):
    """Returns an OnItsWay of the parameter's shape. It lacks memory of that size: writes to it
    fail."""
    return torch.zeros((), device=parameter.device).expand(parameter.shape).as_subclass(OnItsWay)


class Optimizer:
    """An optimizer of torch's that tutti carries out. Its `step()` updates nothing; it raises an
    error if the optimizer's values differ from those with which the gradients have been applied."""

    def __init__(self, optimizer, parameters):
        if type(optimizer) not in _known:
            raise RuntimeError(f"tutti has no optimizer like {type(optimizer).__name__} that "
                               "updates each parameter when its mean arrives. Fix: "
                               "torch.optim.SGD, or "
                               "train without optimizer=")
        self.type, self._names, self._lacks = _known[type(optimizer)]
        self._optimizer = optimizer
        self._known = {id(each) for _, each in parameters}
        self._trained = {id(each): name for name, each in parameters if each.requires_grad}
        self._model = lambda: None
        self.steps = 0  # ended by step()
        self._applied = None  # values in the last pass
        self.values()

    def step_with(self, model) -> None:
        """Replaces the optimizer's `step()` by this class's. The reference to the model is weak, so
        that keeping the optimizer does not keep the model."""
        self._model = weakref.ref(model)
        self._optimizer.step = types.MethodType(
            lambda _, closure=None: self.step(closure), self._optimizer)

    def _expect_the_models_parameters(self) -> None:
        """Raises an error unless the optimizer has every trained parameter of the model, and no
        trained one that the model lacks. Whether the same parameters are trained as when the model
        was wrapped, the model itself checks."""
        its = {id(each): each.requires_grad for group in self._optimizer.param_groups
               for each in group["params"]}
        if lacking := [name for each, name in self._trained.items() if each not in its]:
            raise RuntimeError(f"the optimizer lacks {lacking[0]}, but tutti updates every "
                               "parameter that requires a gradient. Fix: "
                               "torch.optim.SGD(module.parameters(), ...)")
        if any(trained for each, trained in its.items() if each not in self._known):
            raise RuntimeError("the optimizer has a parameter that the model does not have. Fix: "
                               "torch.optim.SGD(module.parameters(), ...)")

    def values(self) -> dict:
        """Returns the optimizer's values for the next step, by tutti's names. Raises an error if
        tutti's optimizer cannot do the same."""
        self._expect_the_models_parameters()
        for each in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):  # of torch 2
            if getattr(self._optimizer, each, None):
                raise RuntimeError("the optimizer has a hook around its step(), but tutti updates "
                                   "each parameter when its mean arrives. Fix: call the hook's "
                                   "function yourself, or train without optimizer=")
        groups = self._optimizer.param_groups
        name = type(self._optimizer).__name__
        for each in self._lacks:
            if any(group.get(each) for group in groups):
                raise RuntimeError(f"tutti's {name} has no {each}. Fix: {each}="
                                   f"{0 if each == 'dampening' else False}, or train without "
                                   "optimizer=")
        for mine, each in self._names.items():
            if groups[0][each] != groups[0][each]:
                raise RuntimeError(f"{name}'s {each} is nan. Fix: a number")
            if any(group[each] != groups[0][each] for group in groups):
                raise RuntimeError(f"param_groups differ in {each}, but tutti's {name} has one "
                                   "for all. Fix: one group, or train without optimizer=")
        if self._optimizer.state:
            raise RuntimeError(f"{name} holds momenta of torch's, but tutti keeps its own in the "
                               "model's state_dict(). Fix: load param_groups alone, or begin with "
                               "a new optimizer")
        return {mine: float(groups[0][each]) for mine, each in self._names.items()}

    def _trainer(self):
        model = self._model()
        if model is None or model._trainer is None:
            raise RuntimeError("the model of this optimizer has ended. Fix: keep the model, or "
                               "make a new optimizer")
        return model._trainer

    def begin(self) -> torch.Tensor:
        """Returns the values for a pass that begins. The caller sends rank 0's to all ranks."""
        if self._trainer().passes != self.steps:
            raise RuntimeError("step() was not called after the last backward(), whose gradients "
                               "have updated the parameters. Fix: call it after each, and "
                               "accumulate gradients inside no_sync()")
        return torch.tensor(list(self.values().values()), dtype=torch.float64)

    def apply(self, values: torch.Tensor) -> None:
        """Sets the values, which are the same on all ranks, for the pass that begins."""
        now = dict(zip(self._names, values.tolist()))
        for group in self._optimizer.param_groups:
            for mine, each in self._names.items():
                if group[each] != now[mine]:
                    group[each] = now[mine]
        if now != self._applied:
            self._trainer().change(now)
            self._applied = now

    def set_again(self) -> None:
        """Makes the next pass set the values, even the same ones, because residuals have been loaded
        that may be measured in steps of another rate."""
        self._applied = None

    def step(self, closure=None) -> None:
        if closure is not None:
            raise RuntimeError("step(closure) computes gradients again, but the last ones are "
                               "already applied. Fix: call backward() before step()")
        if self._trainer().passes != self.steps + 1:
            raise RuntimeError("step() follows no backward pass that was averaged. Fix: call "
                               "step() once after each backward() outside no_sync()")
        if self._applied not in (None, self.values()):
            raise RuntimeError("the optimizer's values were changed between the forward pass and "
                               "step(), which is too late for this step. Fix: change them after "
                               "step()")
        self._trainer().end_step()
        self.steps += 1
