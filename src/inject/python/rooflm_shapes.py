# Shapes of what PyTorch's operators work on in one step, from which rooflm works out FLOP and bytes.
"""One step runs through a dispatch mode, which sees every operator below autograd, in the backward pass and the optimizer
as well. It passes everything on as it is; that step takes some hundred microseconds longer for each operator, and counts as
warm-up. Calls of the same operator with the same shapes in the same module are one fact of the record.
"""
import json


class Shapes:
    """A context in which operators are noted. `place()` says for whom they work."""

    def __init__(self, torch, place):
        from torch.utils._python_dispatch import TorchDispatchMode
        outer = self
        self.torch, self.place = torch, place
        self.counts, self.depth, self.problem, self.is_over = {}, 0, "", False

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                result = func(*args, **(kwargs or {}))
                outer.note(func, args, kwargs or {}, result)
                return result

        self.mode = Mode()

    def __enter__(self):
        # Once: within the backward pass modules may be called again.
        self.depth += 1
        if self.depth == 1:
            self.mode.__enter__()
        return self

    def __exit__(self, *problem):
        self.depth -= 1
        if self.depth == 0:
            self.mode.__exit__(*problem)

    def note(self, func, args, kwargs, result):
        if self.is_over or self.problem:
            return
        try:
            taken = [*args, *kwargs.values()]
            given = result if isinstance(result, (tuple, list)) else (result,)
            inputs = tuple(described for described in map(self.describe, taken) if described)
            outputs = tuple(described for described in map(self.describe, given) if described)
            if self.is_on_device(taken) or self.is_on_device(given):
                key = (func._schema.name, *self.place(), self.is_causal(func, args, kwargs), inputs, outputs)
                self.counts[key] = self.counts.get(key, 0) + 1
        except Exception as problem:  # the program goes on
            self.problem = repr(problem)

    def is_on_device(self, values):
        for value in values:
            if isinstance(value, self.torch.Tensor):
                if value.is_cuda:
                    return True
            elif isinstance(value, (tuple, list)) and self.is_on_device(value):
                return True
        return False

    def describe(self, value):
        """["bfloat16", [8, 16]], and the bytes of its memory where those are fewer; of a list the elements of all."""
        tensor = self.torch.Tensor
        if isinstance(value, tensor):
            kind, shape = str(value.dtype).replace("torch.", ""), tuple(value.shape)
            held = self.held_bytes(value)
            return (kind, shape, held) if 0 < held < value.numel() * value.element_size() else (kind, shape)
        if isinstance(value, (tuple, list)) and value and all(isinstance(one, tensor) for one in value):
            kind = str(value[0].dtype).replace("torch.", "")
            return ("list", kind, (sum(one.numel() for one in value),))
        return None

    @staticmethod
    def held_bytes(value):
        try:
            return value.untyped_storage().nbytes()
        except Exception:  # of a tensor without memory of its own
            return 0

    @staticmethod
    def is_causal(func, args, kwargs):
        if "attention" not in func._schema.name:
            return False
        for place, argument in enumerate(func._schema.arguments):
            if argument.name == "is_causal":
                return bool(args[place] if place < len(args) else kwargs.get("is_causal", False))
        return False

    def finish(self, library):
        """Hands over what was noted."""
        self.is_over = True
        if self.problem:
            library.fact(b"no shapes", self.problem.encode())
        tf32 = int(bool(self.torch.backends.cuda.matmul.allow_tf32))
        for number, (key, count) in enumerate(self.counts.items()):
            name, phase, module, redone, causal, inputs, outputs = key
            text = json.dumps({"op": name, "phase": phase, "module": module, "again": int(redone), "causal": int(causal),
                               "tf32": tf32, "n": count, "in": inputs, "out": outputs}, separators=(",", ":"))
            library.fact(b"work %d" % number, text.encode())
