"""A stand-in for torch, as much of it as the recorder's marks touch, and a program that trains with it."""
import os
import textwrap

# As much of torch as the marks touch.
TORCH = {
    "__init__.py": """
        from . import autograd, compiler, cuda, nn, optim
        __version__ = "9.9"
        class Node:
            def __init__(self): self.metadata, self.hooks = {}, []
            def register_prehook(self, hook): self.hooks.append(hook)
        class Tensor:
            def __init__(self, grad_fn=None): self.grad_fn = grad_fn
        def is_grad_enabled(): return True
        """,
    "compiler.py": "def is_compiling(): return False",
    "cuda.py": """
        capturing = False
        def is_initialized(): return False
        def is_current_stream_capturing(): return capturing
        """,
    "autograd/__init__.py": """
        from . import graph
        from .graph import _engine_run_backward
        def backward(nodes): _engine_run_backward(nodes)
        """,
    "autograd/graph.py": """
        def _engine_run_backward(nodes):
            for node in nodes:
                for hook in node.hooks: hook(None)
        """,
    "nn.py": """
        class Module:
            def __init__(self, **parts): self.parts = parts
            def named_modules(self, prefix=""):
                yield prefix, self
                for name, part in self.parts.items():
                    yield from part.named_modules(prefix + ("." if prefix else "") + name)
            def named_parameters(self): return []
            def named_buffers(self): return []
            def _call_impl(self, *args, **kwargs): return self.forward(*args, **kwargs)
            __call__ = _call_impl
        """,
    "optim/__init__.py": "from . import optimizer",
    "optim/optimizer.py": """
        before, after = [], []
        def register_optimizer_step_pre_hook(hook): before.append(hook)
        def register_optimizer_step_post_hook(hook): after.append(hook)
        class Optimizer:
            param_groups, state = [], {}
            def step(self, *args, **kwargs):
                args = (self, *args)
                for hook in before: args, kwargs = hook(self, args, kwargs) or (args, kwargs)
                value = self.change(*args[1:], **kwargs)
                for hook in after: hook(self, args, kwargs)
                return value
            def change(self, closure=None): return closure and closure()
        """,
}
TRAINING = """
import torch
nodes = []
class Leaf(torch.nn.Module):
    def forward(self, x):
        nodes.append(torch.Node())
        return torch.Tensor(nodes[-1])
class Model(torch.nn.Module):
    def forward(self, x):
        for part in self.parts.values(): x = part(x)
        return x
model, optimizer = Model(**{"0": Leaf(), "1": Leaf()}), torch.optim.optimizer.Optimizer()
for step in range(5):
    nodes.clear()
    model(torch.Tensor())
    torch.autograd.backward(list(reversed(nodes)))
    optimizer.step()
print("trained")
"""


def write_torch(folder, **changed):
    """Writes it below `folder`, with other texts for some of its files ("cuda" is cuda.py)."""
    texts = {**TORCH, **{f"{name}.py": text for name, text in changed.items()}}
    for name, text in texts.items():
        path = folder / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def environment(folder):
    """Writes it below `folder`, with a sitecustomize of the program's own, and has Python find both."""
    write_torch(folder / "site")
    (folder / "site" / "sitecustomize.py").write_text("print('mine')\n")
    return {**os.environ, "PYTHONPATH": str(folder / "site")}
