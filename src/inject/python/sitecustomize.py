# Read by every Python that starts while `rooflm record` runs a program: marks PyTorch once it is imported.
"""Runs the sitecustomize that this one hides, then waits for torch."""
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


class _WaitForTorch:
    """Finds nothing by itself: marks torch as soon as somebody else has loaded it."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        import importlib.util
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            try:
                import rooflm_torch
                rooflm_torch.mark(module)
            except Exception as problem:  # the program goes on without marks
                print(f"rooflm: torch is not marked: {problem!r}", file=sys.stderr)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("ROOFLM_RECORD_FOLDER") and os.environ.get("ROOFLM_RECORD_TORCH", "on") != "off":
    sys.meta_path.insert(0, _WaitForTorch())
_run_hidden()
