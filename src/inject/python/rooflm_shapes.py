# Shapes of what PyTorch's operators work on in one step, from which rooflm works out FLOP and bytes.
"""One step runs through a dispatch mode, which sees every operator below autograd, in the backward pass and the optimizer
as well, and between them. It passes everything on as it is; that step takes some hundred microseconds longer for each operator, and
counts as warm-up. Calls of the same operator with the same shapes in the same module are one fact of the record. Each call is a
range, too: a kernel that is launched within it works for it.

Kernels of Triton are no operators: those that torch.compile makes, and those of a program's own, are noted where they are launched.
"""
import json
import math
import os
import sys

_OPERATOR = 12  # kind of ranges, as the library numbers them


class Shapes:
    """A context in which operators are noted, as far as one thread's. `place()` says for whom they work."""

    def __init__(self, torch, place, library):
        from torch.utils import _python_dispatch as dispatch
        outer = self
        self.torch, self.place, self.library, self.dispatch = torch, place, library, dispatch
        self.works, self.calls, self.depth, self.problem, self.is_over = {}, 0, 0, "", False
        self.stays = False
        self.masks = {}         # block masks of attention, by the key of the work
        self.traffic = 0        # bytes that were touched so far
        self.touched = {}       # when each memory was, by its address
        self.cache_bytes = self._cache_bytes()
        self.replaced = []

        class Mode(dispatch.TorchDispatchMode):
            supports_higher_order_operators = True

            @classmethod
            def ignore_compile_internals(cls):
                return True

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                # A tensor that is made of others calls its operators with those, which come here again.
                if any(hasattr(kind, "__tensor_flatten__") for kind in types):
                    return NotImplemented
                kwargs = kwargs or {}
                if outer.is_over:
                    return func(*args, **kwargs)
                with outer.calling() as call:
                    result = func(*args, **kwargs)
                outer.note(call, func, args, kwargs, result)
                return result

        self.mode = Mode()
        self._watch_triton()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave)

    @staticmethod
    def can_see_compiled(torch):
        """Whether programs of torch.compile run as they are while a mode is on."""
        try:
            from torch.utils._python_dispatch import TorchDispatchMode
            return hasattr(TorchDispatchMode, "ignore_compile_internals")
        except Exception:
            return False

    def _cache_bytes(self):
        try:
            return int(self.torch.cuda.get_device_properties(self.torch.cuda.current_device()).L2_cache_size)
        except Exception:  # of a torch that does not say
            return 0

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

    def stay_on(self):
        """From now until `finish`, unless somebody else's mode is on, which would have to end first."""
        try:
            if not self.dispatch._get_current_dispatch_mode_stack():
                self.__enter__()
                self.stays = True
        except Exception:  # then around modules, the backward pass and optimizers alone
            pass

    def _leave(self):
        self.is_over = True
        try:
            stack = self.dispatch._get_current_dispatch_mode_stack()
            if self.stays and stack and stack[-1] is self.mode:
                self.stays = False
                self.__exit__(None, None, None)
        except Exception:  # what stays on passes everything on
            pass

    def calling(self):
        self.calls += 1
        return _Call(self.library, self.calls)

    def note(self, call, func, args, kwargs, result):
        if self.is_over or self.problem:
            return
        try:
            schema = getattr(func, "_schema", None)
            name = schema.name if schema is not None else f"higher_order::{getattr(func, '__name__', func)}"
            # What is written into is no input; where nothing is given back it is what was made.
            out = [value for key, value in kwargs.items() if key.startswith("out") and self.tensors(value)]
            taken = [*args, *(value for key, value in kwargs.items() if not key.startswith("out"))]
            given = result if isinstance(result, (tuple, list)) else out if result is None else (result,)
            self.add(call, name, taken, given, self.is_causal(name, schema, args, kwargs))
        except Exception as problem:  # the program goes on
            self.problem = repr(problem)

    def add(self, call, name, taken, given, causal=False, cap=0):
        """One call of `name`. No more than `cap` elements of a tensor are read or written, where that is known."""
        if any(hasattr(one, "fake_mode") for value in (*taken, *given) for one in self.tensors(value)):
            return None
        if not self.is_on_device(taken) and not self.is_on_device(given):
            return None
        inputs = tuple(described for value in taken if (described := self.describe(value, cap)))
        outputs = tuple(described for value in given if (described := self.describe(value, cap)))
        key = (name, *self.place(), causal, inputs, outputs)
        work = self.works.setdefault(key, {"calls": [], "cold": 0})
        work["calls"].append(call)
        work["cold"] += self.cold_bytes(taken, given, cap)
        return key

    def tensors(self, value):
        """Of a tensor or a list of some; those of this process where it is spread over several."""
        tensor = self.torch.Tensor
        if isinstance(value, tensor):
            return (getattr(value, "_local_tensor", value),)
        if isinstance(value, (tuple, list)):
            return tuple(getattr(one, "_local_tensor", one) for one in value if isinstance(one, tensor))
        return ()

    def is_on_device(self, values):
        return any(one.is_cuda for value in values for one in self.tensors(value))

    def describe(self, value, cap=0):
        """["bfloat16", [8, 16]], and the bytes of its memory where those are fewer; of a list the elements of all."""
        tensors = self.tensors(value)
        if not tensors:
            return None
        kind, first = str(tensors[0].dtype).replace("torch.", ""), tensors[0]
        if not isinstance(value, self.torch.Tensor):
            return ("list", kind, (sum(one.numel() for one in tensors),))
        size = first.numel() * first.element_size()
        held = self.held_bytes(first) or size
        if cap:
            held = min(held, cap * first.element_size())
        return (kind, tuple(first.shape), held) if held < size else (kind, tuple(first.shape))

    @staticmethod
    def held_bytes(value):
        try:
            return value.untyped_storage().nbytes()
        except Exception:  # of a tensor without memory of its own
            return 0

    def cold_bytes(self, taken, given, cap):
        """Of the inputs, what was last touched so long ago that no cache holds it: twice its size went by."""
        cold = 0
        if not self.cache_bytes:
            return 0
        before = self.traffic
        for values, is_input in ((taken, True), (given, False)):
            for one in (one for value in values for one in self.tensors(value)):
                try:
                    address = one.untyped_storage().data_ptr()
                    size = min(one.numel() * one.element_size(), one.untyped_storage().nbytes())
                except Exception:
                    continue
                if cap:
                    size = min(size, cap * one.element_size())
                if is_input and before - self.touched.get(address, 0) > 2 * self.cache_bytes:
                    cold += size
                self.touched[address] = self.traffic = self.traffic + size
        return cold

    @staticmethod
    def is_causal(name, schema, args, kwargs):
        if "attention" not in name and "attn" not in name:
            return False
        for place, argument in enumerate(schema.arguments if schema is not None else ()):
            if argument.name in ("is_causal", "causal"):
                return bool(args[place] if place < len(args) else kwargs.get(argument.name, False))
        return False

    def _watch_triton(self):
        """Launches of kernels of Triton, until `finish`."""
        inductor = sys.modules.get("torch._inductor.runtime.triton_heuristics")
        self._replace(getattr(inductor, "CachingAutotuner", None), self._note_inductor)
        self._replace(getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None), self._note_triton)

    def _replace(self, kind, note):
        run = getattr(kind, "__dict__", {}).get("run")
        if run is None:
            return
        outer = self

        def noted(self, *args, **kwargs):
            if outer.is_over or kwargs.get("warmup"):
                return run(self, *args, **kwargs)
            with outer.calling() as call:
                result = run(self, *args, **kwargs)
            try:
                note(call, self, args, kwargs)
            except Exception as problem:  # the program goes on
                outer.problem = outer.problem or repr(problem)
            return result

        kind.run = noted
        self.replaced.append((kind, run))

    def _note_inductor(self, call, kernel, args, _):
        """Its pointers are named: in_ptr0, out_ptr0, in_out_ptr0; templates have those of what they were made from."""
        function, signature = kernel.fn, getattr(kernel, "triton_meta", {}).get("signature")
        names = [name for name, kind in signature.items() if kind != "constexpr"] if signature else function.arg_names
        named = list(zip(names, args))
        name = getattr(kernel, "inductor_meta", {}).get("kernel_name") or function.__name__
        sizes = [value for key, value in named if key.endswith("numel") and isinstance(value, int)]
        operands = {key: value for key, value in named if self.tensors(value)}
        if "arg_Q" in operands:
            return self._note_flex(call, operands)
        made = [value for key, value in operands.items() if key.startswith(("out_ptr", "in_out_ptr"))]
        if "arg_A" in operands and "arg_B" in operands:
            rest = [value for key, value in operands.items() if key.startswith(("in_ptr", "in_out_ptr"))]
            return self.add(call, "triton::mm", [operands["arg_A"], operands["arg_B"], *rest], made)
        taken = [value for key, value in operands.items() if not key.startswith(("out_ptr", "ws_ptr"))]
        # Each point of the kernel reads or adds to an element of each: of a table no more than that.
        return self.add(call, "triton::" + name, taken, made, cap=math.prod(sizes) if sizes else 0)

    def _note_flex(self, call, operands):
        is_backward = "arg_DO" in operands
        names = (["arg_DO"] if is_backward else []) + ["arg_Q", "arg_K", "arg_V"]
        made = [value for key, value in operands.items() if key.startswith("out_ptr") or key in ("arg_DQ", "arg_DV")]
        key = self.add(call, "triton::flex_attention" + ("_backward" if is_backward else ""),
                       [operands[name] for name in names if name in operands], made)
        if key and "arg_KV_NUM_BLKS" in operands and "arg_KV_IDX" in operands:
            self.masks.setdefault(key, (operands["arg_KV_NUM_BLKS"], operands.get("arg_FULL_KV_NUM_BLKS"),
                                        operands["arg_KV_IDX"].numel()))

    def _note_triton(self, call, kernel, args, kwargs):
        """Nobody says what it only reads: each of its tensors is touched once."""
        tensors = [*args, *(value for key, value in kwargs.items() if key not in ("grid", "stream"))]
        self.add(call, "triton::" + getattr(getattr(kernel, "fn", kernel), "__name__", "kernel"), tensors, ())

    @staticmethod
    def needed_share(mask):
        """Of the scores: whole blocks, and half of those that a mask cuts."""
        partial, full, blocks = mask
        whole = 0 if full is None else int(full.sum().item())
        return min(1.0, (whole + 0.5 * int(partial.sum().item())) / max(1, blocks))

    def finish(self):
        """Hands over what was noted."""
        self._leave()
        for kind, run in self.replaced:
            kind.run = run
        if self.problem:
            self.library.fact(b"no shapes", self.problem.encode())
        tf32 = int(bool(self.torch.backends.cuda.matmul.allow_tf32))
        for number, (key, work) in enumerate(self.works.items()):
            name, phase, module, redone, causal, inputs, outputs = key
            calls = work["calls"]
            note = {"op": name, "phase": phase, "module": module, "again": int(redone), "causal": int(causal),
                    "tf32": tf32, "n": len(calls), "cold": work["cold"] // len(calls), "calls": calls, "in": inputs,
                    "out": outputs}
            try:
                if key in self.masks:
                    note["needed"] = self.needed_share(self.masks[key])
            except Exception:  # then all of it
                pass
            self.library.fact(b"work %d" % number, json.dumps(note, separators=(",", ":")).encode())
        self.works, self.masks, self.touched = {}, {}, {}


class _Call:
    """A call of an operator as a range; its number."""

    def __init__(self, library, number):
        self.library, self.number = library, number

    def __enter__(self):
        self.library.push(self.number, _OPERATOR)
        return self.number

    def __exit__(self, *_):
        self.library.pop()
