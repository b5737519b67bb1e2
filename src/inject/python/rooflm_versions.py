# What the recorder's marks need of PyTorch, which its versions have in different places (1.13 to 2.11).
"""Each function finds its place in the torch that was loaded; none imports anything that torch would not have."""


def find_is_compiling(torch):
    """Whether code is being traced by torch.compile, as a function."""
    for place in (getattr(torch, "compiler", None), getattr(torch, "_dynamo", None)):
        found = getattr(place, "is_compiling", None)
        if found is not None:
            return found
    return lambda: False


def replace_engine(torch, around):
    """Has `around(run)` run in place of the call that runs the autograd engine, for backward() and grad()."""
    holders = [torch.autograd, getattr(torch.autograd, "graph", None)]
    is_done = False
    for holder in holders:
        run = getattr(holder, "_engine_run_backward", None)
        if run is not None:
            holder._engine_run_backward = around(run)
            is_done = True
    variable = getattr(torch.autograd, "Variable", None)
    engine = getattr(variable, "_execution_engine", None)
    if not is_done and engine is not None:  # before 2.1 it is called where it is
        variable._execution_engine = _Engine(engine, around(engine.run_backward))


class _Engine:
    """The autograd engine with another way to run it."""

    def __init__(self, engine, run_backward):
        self._engine, self.run_backward = engine, run_backward

    def __getattr__(self, name):
        return getattr(self._engine, name)


def hook_optimizers(module, before, after):
    """Has `before(optimizer, args, kwargs)`, which may return others, and `after(optimizer)` called around each step. `args`
    begin with the optimizer. `module` is torch.optim.optimizer."""
    if hasattr(module, "register_optimizer_step_pre_hook"):
        module.register_optimizer_step_pre_hook(before)
        module.register_optimizer_step_post_hook(after)
        return
    # Before 2.0 each class's step is replaced as its first optimizer is made: so is this one, around it.
    hook = module.Optimizer._hook_for_profile

    def hook_both(optimizer):
        hook(optimizer)
        step = type(optimizer).step
        if getattr(step, "_rooflm", False):
            return

        def marked(self, *args, **kwargs):
            changed = before(self, (self, *args), kwargs)
            if changed is not None:
                (_, *args), kwargs = changed
            try:
                return step(self, *args, **kwargs)
            finally:
                after(self)

        marked.__dict__.update(step.__dict__, _rooflm=True)  # `hooked`, by which torch knows its own
        marked.__wrapped__, marked.__name__, marked.__doc__ = step, step.__name__, step.__doc__
        type(optimizer).step = marked

    module.Optimizer._hook_for_profile = hook_both


def first_tensor(torch, args, kwargs):
    """The first tensor that a module is given, None where there is none."""
    tensor = torch.Tensor
    for value in args:
        if isinstance(value, tensor):
            return value
    for value in kwargs.values():
        if isinstance(value, tensor):
            return value
    return None
