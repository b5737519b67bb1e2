"""As much of torch as the recorder's marks touch, for tests without it."""
import os
import textwrap

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
            def _call_impl(self, *args): return self.forward(*args)
            __call__ = _call_impl
        """,
    "optim/__init__.py": "from . import optimizer",
    "optim/optimizer.py": """
        before, after = [], []
        def register_optimizer_step_pre_hook(hook): before.append(hook)
        def register_optimizer_step_post_hook(hook): after.append(hook)
        class Optimizer:
            def step(self):
                for hook in before: hook(self, (), {})
                for hook in after: hook(self, (), {})
        """,
}


def environment(folder):
    """Writes it to `folder`, with a sitecustomize of the program's own, and has Python find both."""
    for name, text in TORCH.items():
        path = folder / "site" / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    (folder / "site" / "sitecustomize.py").write_text("print('mine')\n")
    return {**os.environ, "PYTHONPATH": str(folder / "site")}
