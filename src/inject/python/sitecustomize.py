# Read by every Python that starts while `rooflm record` runs a program: marks PyTorch and JAX once they are imported.
"""Runs the sitecustomize that this one hides, then waits for torch and jax."""
import os
import sys


def _run_hidden():
    """The sitecustomize that Python would have found without this folder."""
    import importlib.machinery
    import importlib.util
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


class _WaitFor:
    """Finds nothing by itself: marks a package as soon as somebody else has loaded it, by the module `rooflm_PACKAGE`."""

    def __init__(self, package):
        self.package, self.is_looking = package, False

    def find_spec(self, name, path=None, target=None):
        if name != self.package or self.is_looking:
            return None
        import importlib
        import importlib.util
        self.is_looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.is_looking = False
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            if self in sys.meta_path:  # who only asks whether the package is there does not load it
                sys.meta_path.remove(self)
            run(module)
            try:
                importlib.import_module("rooflm_" + name).mark(module)
            except Exception as problem:  # the program goes on without marks
                print(f"rooflm: {name} is not marked: {problem!r}", file=sys.stderr)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("ROOFLM_RECORD_FOLDER") and os.environ.get("ROOFLM_RECORD_TORCH", "on") != "off":
    for _package in ("torch", "jax"):
        sys.meta_path.insert(0, _WaitFor(_package))
_run_hidden()
