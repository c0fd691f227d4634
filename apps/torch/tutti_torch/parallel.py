"""DataParallel: a model whose gradients a strategy averages, as under DistributedDataParallel."""

import atexit
import collections.abc
import contextlib
import dataclasses
import itertools
import operator
import os
import sys
import weakref

import torch

from .building import compiled
from .optimizer import Optimizer, on_its_way

_known = {}  # what is compiled, by strategy, header, optimizer and place
_session = None  # keeps MPI running, from the first model to the process's end
_models = weakref.WeakSet()


def _compiled(*build):
    global _session
    if build not in _known:
        _known[build] = compiled(*build)
    binding, strategy = _known[build]
    if _session is None:
        _session = binding.Session()
        atexit.register(_end, os.getpid())
    _expect_company(_session.processes)
    return binding, strategy


def _place_of(parameters) -> str:
    """Returns where the model lies. Its first trained parameter decides for all."""
    trained = (each for _, each in parameters if each.requires_grad)
    return "on_cuda" if any(each.is_cuda for each in itertools.islice(trained, 1)) else "on_host"


def _expect_company(processes: int) -> None:
    """Raises RuntimeError if a launcher that this MPI does not know started several processes. Each
    would train alone."""
    started = max(int(os.environ.get(each) or 1)
                  for each in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                               "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"))
    if processes == 1 and started > 1:
        raise RuntimeError(f"a launcher started {started} processes, but MPI sees only this "
                           f"one. Fix: mpirun -np {started} python3 SCRIPT, from the MPI whose "
                           "mpicxx is found here, and not torchrun")


def _in_text(options) -> dict:
    """Returns options by name, with their values as C++ reads them."""
    if not isinstance(options, collections.abc.Mapping):
        raise RuntimeError(f"options must be a dict, not {options!r}. Fix: {{\"run.deadline\": 60.0}}")
    return {str(name): _printed(value) for name, value in options.items()}


def _printed(value) -> str:
    """Returns a number of any type in digits, whole ones without a point, as options of integers
    are read (1e6 for bytes), and anything else as Python prints it."""
    if not isinstance(value, (str, bool)):
        for number in (operator.index, float):
            with contextlib.suppress(TypeError, ValueError, RuntimeError):
                found = number(value)
                return repr(int(found) if found == found // 1 else found)
    return str(value)


def _end(process) -> None:
    """Ends every model, then MPI, in the process that has begun it, and not in those that it has
    forked. A rank whose script has failed tells the others why, and exits without ending MPI, which
    would wait for ranks that are gone."""
    global _session
    if os.getpid() != process:
        return
    failure = getattr(sys, "last_value", None)
    for model in list(_models):
        if failure is not None and model._trainer is not None:
            model._trainer.fail(f"rank {model.rank} failed: {type(failure).__name__}: {failure}")
        model._close()
    if failure is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    _session = None


def _untraced(function):
    """Keeps torch.compile from tracing functions that change this object's state between passes."""
    compiler = getattr(torch, "compiler", None)  # since torch 2.1
    return compiler.disable(function) if hasattr(compiler, "disable") else function


class _Waiting:
    """A module's hook by which it waits for the last update of its own parameters. Those of a copy,
    or of a pickled module, are updated by nobody."""

    def __init__(self, model=lambda: None, own=()):
        self._model = model
        self._own = own

    @_untraced
    def __call__(self, *_):
        model = self._model()
        if model is not None and model._trainer is not None:
            model._trainer.wait(self._own)

    def __reduce__(self):
        return _Waiting, ()


def _tensors_in(value):
    """Yields every tensor in the output of a forward pass."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, collections.abc.Mapping):
        yield from _tensors_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors_in(each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _tensors_in([getattr(value, each.name) for each in dataclasses.fields(value)])


class DataParallel(torch.nn.Module):
    """Wraps `module`, which every process of an MPI job trains. When `backward()` returns, each
    gradient is the mean over all ranks, as under torch's DistributedDataParallel. No other line of
    a training loop changes.

    `strategy` is a C++ type: one of tutti's, as "strategies::Horovod", a composition, as
    "compose<compression::top_k>", or a type of the C++ file `header`. It is compiled when it is
    first asked for, in about half a minute, and kept in $TUTTI_CACHE (~/.cache/tutti). `options` sets
    options of its policies and of the engine: {"fusion.bytes": 32 << 20, "run.deadline": 60.0,
    "run.progress": "thread"}. The last says who drives communication ("automatic", "caller" or
    "thread", as tutti-train's --progress does); with `optimizer` or on a GPU it is a thread.

    All ranks start with rank 0's parameters and buffers. Rank 0's buffers are sent again before
    each forward pass, unless `broadcast_buffers` is false or they have not changed. A rank that
    evaluates alone calls `module` instead, which does not communicate.
    A parameter without a gradient contributes zeros. With `find_unused_parameters`, a parameter
    that no rank has used keeps its `.grad` and its residual of the compressor. That costs a message
    a pass.

    With `optimizer`, a torch.optim.SGD of the module's parameters or, for strategies::OneBitAdam, a
    tutti_torch.OneBitAdam, training crosses the iteration's end: `backward()` returns at once, and
    tutti updates each parameter when its mean arrives. A module waits for its parameters before the
    next forward pass reads them, as do this object's `parameters()`, `state_dict()` and
    `load_state_dict()`. Code that reads them otherwise calls `wait()` first. The training loop and
    its schedulers stay. All ranks use rank 0's values, which costs a message a pass. Momenta are
    part of this model's state, gradients cannot be read, and parameters change before `step()`,
    which raises an error where that makes a difference.

    If a compressor keeps residuals, or its payloads cannot be added, and some gradient is not
    finite, then every gradient of the pass becomes infinite on every rank, and residuals take up no
    infinity.
    `scaler` is an object whose `get_scale()` returns the factor that the loss is multiplied by.
    With it, gradients become infinite, too, if a mean is not finite. Residuals are scaled with the
    factor, and restored after a step that the scaler skips, which costs a copy of them a pass. All
    ranks use rank 0's factor, which costs a message a pass. Under architecture::delayed, where a
    step applies the mean of the one before, no step can be skipped: a gradient that is not finite
    ends training, and `scaler` is refused.

    The model lies on the host, or on a GPU of each rank's own. On a GPU, NCCL carries gradients, in
    the order of torch's current stream, and MPI the rest; `scaler` is refused if the compressor
    keeps residuals.

    Every rank must delete a model between the same two passes, or keep it to the job's end. Under
    the default strategy, rank 0 waits there for the others.

    Errors are a RuntimeError of one sentence. If the job has ranks that are parameter servers,
    `serves` is true on them: they call `serve()` and end.
    """

    def __init__(self, module, strategy="strategies::Horovod", *, header=None, options=None,
                 optimizer=None, scaler=None, broadcast_buffers=True,
                 find_unused_parameters=False):
        super().__init__()
        if not isinstance(module, torch.nn.Module):
            raise RuntimeError(f"the model is {module!r}. Fix: pass a torch.nn.Module")
        if optimizer and scaler:
            raise RuntimeError("scaler.step() skips an update that tutti has already made. Fix: "
                               "train without optimizer=, or without a scaler")
        self.module = module
        self._options = _in_text(options or {})
        self.broadcast_buffers = broadcast_buffers
        self._strategy = strategy
        self._scaler = scaler
        parameters = list(module.named_parameters())
        if lazy := [name for name, each in parameters if torch.nn.parameter.is_lazy(each)]:
            raise RuntimeError(f"{lazy[0]} has no shape yet. Fix: call the module with a batch "
                               "before it is wrapped")
        its = self._optimizer = optimizer and Optimizer(optimizer, parameters)
        binding, compiled_strategy = _compiled(strategy, header, its.type if its else None,
                                               _place_of(parameters))
        self._trainer = binding.Model(compiled_strategy, parameters, self._options, find_unused_parameters,
                                     its.values() if its else {})
        _models.add(self)
        self.rank = self._trainer.rank
        self.workers = self._trainer.workers
        self.serves = self._trainer.serves
        self._averages = True  # false inside no_sync
        self._averaged = True  # whether the last pass was averaged
        self._values = None  # of the optimizer or the scaler, not yet sent in this pass
        self._changed = True  # whether buffers may have changed since they were sent
        self._joins = False  # true inside join
        self._root = 0  # the rank whose buffers and values all take
        self._hooks = []
        self._wrapped = {id(each): each for _, each in parameters}  # kept, so that no id is reused
        self._of_leaves = []  # hooks of the last forward pass, on outputs that are leaves
        if not self.serves:
            trained = [each for _, each in parameters if each.requires_grad]
            self._listen(trained)
            if its:
                its.step_with(self)
                self._await_updates(trained)
            else:
                self._trainer.forward(False)  # earlier gradients are another model's
            if not self._trainer.is_same_on_all(bool(broadcast_buffers)):
                raise RuntimeError("ranks differ in broadcast_buffers. Fix: pass the same on every "
                                   "rank")
            buffers = list(module.buffers())
            self._trainer.expect_alike(buffers)
            self._trainer.broadcast(buffers, 0)

    def serve(self) -> None:
        """Runs a parameter server's rank. Returns when all workers have ended."""
        self._trainer.serve()

    # ---- a pass

    def forward(self, *inputs, **named):
        self._before()
        outputs = self.module(*inputs, **named)
        self._await_backward(outputs)
        return outputs

    @_untraced
    def _before(self) -> None:
        averages = torch.is_grad_enabled() and self._averages
        if averages:
            self._expect_wrapped()
        alone = self._joins and not torch.is_grad_enabled()
        if self._joins and not alone:
            self._meet(2 if averages else 1)
        values = self._values_now() if averages else None
        if not alone:
            self._share_buffers()
            self._changed = averages and self.module.training
        self._averaged = averages
        if torch.is_grad_enabled():
            self._values = values
            if self.module.training:
                self._share_values()
            self._trainer.forward(averages)
        if self._optimizer and not (torch.is_grad_enabled() and self.module.training):
            self.wait()

    def _expect_wrapped(self) -> None:
        """Raises RuntimeError if the module trains a parameter that it has been given since it was
        wrapped, which each rank would train alone. Cost: a walk through the modules."""
        for name, each in self.module.named_parameters():
            if id(each) not in self._wrapped and each.requires_grad and each.is_leaf:
                raise RuntimeError(f"{name} has been replaced or added since the model was "
                                   "wrapped. Fix: wrap the model again")

    @_untraced
    def _await_backward(self, outputs) -> None:
        if self._averaged:
            self._let_leaves_go()
            for each in _tensors_in(outputs):
                if each.requires_grad:
                    hook = each.register_hook(self._begin)
                    if each.is_leaf:
                        self._of_leaves.append(hook)

    def _let_leaves_go(self) -> None:
        for hook in self._of_leaves:
            hook.remove()
        self._of_leaves = []

    def _begin(self, _) -> None:
        if self._trainer.is_to_begin():
            if not self.module.training:
                self._changed = True  # nothing shows that they have not
            self._share_values()
            self._trainer.begin()

    def _share_buffers(self) -> None:
        """Sends the root's buffers to all ranks, if they may have changed."""
        if self.broadcast_buffers and self._changed:
            self._trainer.broadcast(list(self.module.buffers()), self._root)

    def _values_now(self):
        """Returns the values of the optimizer or of the scaler for a pass, or None without
        either."""
        if self._optimizer:
            return self._optimizer.begin()
        if self._scaler:
            return torch.tensor([self._scaler.get_scale()], dtype=torch.float64)
        return None

    def _share_values(self) -> None:
        """Sends the root's values to all ranks, once a pass. A training model does so in the
        forward pass. A forward pass in evaluation mode may have no backward pass, on this rank
        alone, so that the values are sent only when the backward pass begins."""
        values, self._values = self._values, None
        if values is None:
            return
        self._trainer.broadcast([values], self._root)
        if self._optimizer:
            self._optimizer.apply(values)
        else:
            self._trainer.scaled_by(values.item())

    def _listen(self, parameters) -> None:
        """Registers hooks by which autograd reports each gradient that it has written."""
        myself = weakref.ref(self)

        def tell(which):
            def written(*_):
                model = myself()
                if model is not None and model._trainer is not None:
                    model._share_values()
                    model._trainer.ready(which)
            return written

        for which, each in enumerate(parameters):
            if hasattr(each, "register_post_accumulate_grad_hook"):  # since torch 2.1
                self._hooks.append((each.register_post_accumulate_grad_hook(tell(which)), None))
            else:
                with torch.enable_grad():
                    node = each.expand_as(each).grad_fn.next_functions[0][0]  # kept alive by _hooks
                self._hooks.append((node.register_hook(tell(which)), node))

    def _await_updates(self, parameters) -> None:
        """Registers hooks by which each module waits for its parameters before it reads, saves or
        loads them."""
        places = {each: which for which, each in enumerate(parameters)}
        for each, which in places.items():
            self._trainer.show_on_its_way(which, on_its_way(each))
        for module in self.module.modules():
            own = [places[each] for each in module.parameters(recurse=False) if each in places]
            if own:
                wait = _Waiting(weakref.ref(self), own)
                before = module.register_forward_pre_hook(wait)  # first: others may read
                module._forward_pre_hooks.move_to_end(before.id, last=False)
                self._hooks += [(before, None), (module._register_state_dict_hook(wait), None),
                                (module._register_load_state_dict_pre_hook(wait), None)]

    def wait(self) -> None:
        """Waits for the last update of every parameter. Call it before reading parameters other
        than by a forward pass or `state_dict()`."""
        self._trainer.wait()

    def named_parameters(self, *arguments, **named):
        """Returns what torch.nn.Module returns, after the last update of every parameter.
        `parameters()` calls it."""
        if self._optimizer and not self.serves:
            self._trainer.finish_updates()
        return super().named_parameters(*arguments, **named)

    def zero_grad(self, *arguments, **named) -> None:
        """Resets gradients without waiting for parameters, because it reads none."""
        self.module.zero_grad(*arguments, **named)

    def replan(self, options) -> None:
        """Changes options of the strategy from the next pass on. Options that are not named stay,
        and so do residuals of a compressor. Every rank calls it between the same two steps, with
        the same options:

            for density in [0.25, 0.0625, 0.015625, 0.004, 0.001]:  # as DGC warms up
                model.replan({"compression.density": density})

        A state must be loaded under the options under which it was saved. If `options` is refused,
        the model ends on every rank. Cost: a few messages, and allocating the plan's buffers again.
        """
        options = _in_text(options)
        for fixed in ("run.deadline", "run.progress"):
            if fixed in options:
                raise RuntimeError(f"{fixed} is fixed when the model is wrapped. Fix: leave it out, "
                                   "or wrap the model again")
        options = {**self._options, **options}
        self._trainer.replan(options)
        self._options = options

    def _close(self) -> None:
        for hook, _ in self._hooks:
            hook.remove()
        self._hooks = []
        self._let_leaves_go()
        self._trainer = None

    # ---- passes that are not averaged, or not there

    @contextlib.contextmanager
    def no_sync(self):
        """Passes inside add their gradients up on this rank, and the first pass after averages
        them."""
        before, self._averages = self._averages, False
        try:
            yield
        finally:
            self._averages = before

    @contextlib.contextmanager
    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """Lets ranks train on unequal numbers of batches. A rank that leaves contributes zeros
        until all ranks have left. Then all take the parameters and buffers of a rank that left
        last. Takes DDP's arguments, but means stay over all ranks, so that steps become smaller
        when fewer ranks have batches. A forward pass without gradients is local inside, and so are
        its buffers. Cost: a message a pass and rank.
        """
        if not enable:
            yield
            return
        if not divide_by_initial_world_size or throw_on_early_termination:
            raise RuntimeError("join() keeps means over all ranks, until the last has left. Fix: leave "
                               "divide_by_initial_world_size and throw_on_early_termination out")
        self._joins = True
        try:
            yield
            while (most := self._meet(0)) > 0:
                self._share_buffers()
                self._changed = most == 2
                if most == 2:
                    self._values = self._values_now()
                    self._share_values()
                    self._trainer.take_part()
                    if self._optimizer:
                        self._optimizer.steps += 1
            self.wait()
            self._trainer.broadcast([each.detach() for each in self.module.parameters()]
                                    + list(self.module.buffers()), self._root)
        finally:
            self._joins = False
            self._changed = True
            self._root = 0

    def _meet(self, mine: int) -> int:
        """Tells all ranks which pass this one begins: 2 for one that is averaged, 1 for one that is
        not, 0 for none. Returns the maximum over the ranks, and makes the last rank that begins a
        pass the root."""
        flags = [0] * self.workers
        flags[self.rank] = mine
        flags = self._trainer.largest(flags)
        if any(flags):
            self._root = max(rank for rank, each in enumerate(flags) if each > 0)
        return max(flags)

    # ---- state

    def __reduce_ex__(self, _):
        """Refuses to be pickled or copied."""
        raise RuntimeError("a model that trains together with other ranks cannot be copied or "
                           "pickled. Fix: copy model.module, or save model.state_dict()")

    def get_extra_state(self):
        """Returns the state of this rank's compressor and optimizer. Each rank saves its own, and
        loads it when the others do."""
        steps, memories = self._trainer.saved()
        return {"strategy": self._strategy, "options": self._options, "rank": self.rank,
                "workers": self.workers, "steps": steps, "memories": memories,
                "rate": self._optimizer and self._trainer.rate_of_residuals,
                "scale": self._trainer.scale}

    def set_extra_state(self, state) -> None:
        if state["strategy"] != self._strategy:
            raise RuntimeError(f"the state is of {state['strategy']}, but this model's strategy is "
                               f"{self._strategy}. Fix: load only model.module")
        remembers = any(each.numel() > 0 for each in state["memories"])
        here, there = (self.rank, self.workers), (state["rank"], state["workers"])
        if remembers and here != there:
            raise RuntimeError(f"the state holds momenta or residuals of rank {there[0]} of "
                               f"{there[1]}, but this is rank {here[0]} of {here[1]}. Fix: let "
                               "every rank save and load its own, in a job of as many ranks")
        self._expect_one_step(state["steps"])
        was = _in_text(state.get("options", self._options))  # a saved state may lack them
        rate = self._trainer.rate_of_residuals
        if self._optimizer:
            rate = state.get("rate") or rate
            self._optimizer.set_again()
        self._trainer.resume(state["steps"], state["memories"], rate, state["scale"], was)

    def _expect_one_step(self, steps: int) -> None:
        """Raises RuntimeError unless all ranks load states of the same step, because ranks at
        different steps would wait for each other's messages. Cost: a message a rank."""
        said = [0] * (8 * self.workers)
        said[8 * self.rank:8 * self.rank + 8] = steps.to_bytes(8, "little")
        heard = bytes(self._trainer.largest(said))
        loaded = [int.from_bytes(heard[8 * rank:8 * rank + 8], "little")
                  for rank in range(self.workers)]
        for rank, its in enumerate(loaded):
            if its != loaded[0]:
                raise RuntimeError(f"rank 0 loads a state of step {loaded[0]}, but rank {rank} one of "
                                   f"step {its}. Fix: let every rank load the state that it saved "
                                   "when the others did")
