# Marks modules, the backward pass and optimizers of PyTorch in a program that `rooflm record` runs.
"""Marks are calls of the injection library; nothing is imported that torch does not have.

A module's forward pass is a range named after its path. Its backward pass has no place in Python: the autograd graph
is asked to say when it comes to what a module made (a hook on the node of its output) and when it goes back to what
called it (one on the nodes of its inputs); kernels that autograd starts in between are that module's.

All of that costs a step of a small model a tenth of its time, and steps launch the same kernels in the same order: so
modules are marked in the first steps and in every sixteenth (ROOFLM_RECORD_MARK_EVERY), and the steps in between learn
from those whose kernel is whose. Steps in which nothing of the device is recorded have no marks. In these a module's call only looks whether it is to be marked: to put the class's own
call back would make the interpreter forget what it has learned of all modules, each time. Steps themselves, the backward pass and
optimizers are marked in all of them. In the second step the shapes are noted, too (rooflm_shapes).
"""
import atexit
import ctypes
import functools
import os
import sys
import weakref

import rooflm_allocator
import rooflm_stacks
import rooflm_versions

_USER, _PHASE, _MODULE, _RECORDER = 0, 2, 3, 13  # kinds of ranges, as the library numbers them
_LEARNED = 4            # first steps, all of them marked
_ALLOCATIONS = 2        # the step, counted from 0, whose allocations are kept
marks = None            # of this process: scripts/record_cost.py switches them


class Library:
    """The injection library, without releasing the interpreter's lock: calls are shorter than that would take."""

    def __init__(self):
        library = ctypes.PyDLL(os.environ["CUDA_INJECTION64_PATH"])
        number = ctypes.c_uint32
        self.begin = library.rooflm_begin
        self.text = library.rooflm_text
        self.text.restype, self.text.argtypes = number, [ctypes.c_char_p]
        self.push = library.rooflm_push
        self.push.restype, self.push.argtypes = None, [number, number]
        self.pop = library.rooflm_pop
        self.pop.restype, self.pop.argtypes = None, []
        self.gradient = library.rooflm_gradient
        self.gradient.restype, self.gradient.argtypes = None, [number]
        self.begin_step, self.end_step = library.rooflm_begin_step, library.rooflm_end_step
        self.begin_step.restype = None
        self.stack = library.rooflm_stack
        self.stack.restype, self.stack.argtypes = None, [number, number]
        self.fact = library.rooflm_fact
        self.fact.restype, self.fact.argtypes = None, [ctypes.c_char_p, ctypes.c_char_p]
        self.block = library.rooflm_block
        self.block.restype = None
        self.block.argtypes = [number, ctypes.c_uint64, ctypes.c_int64, ctypes.c_uint64]
        self.amount = library.rooflm_amount
        self.amount.restype, self.amount.argtypes = None, [number, number, ctypes.c_int64]


def mark(torch):
    """Puts the marks in. `torch` is the module, just loaded."""
    global marks
    library = Library()
    if not library.begin():
        return
    library.fact(b"torch", torch.__version__.encode())
    rooflm_stacks.start(library)
    marks = Marks(torch, library)
    marks.put_in()
    atexit.register(_note_memory, torch, library)


def _number_of(variable, fallback):
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else fallback


class Marks:
    """What is marked now, and the place of the program in its modules."""

    def __init__(self, torch, library):
        self.torch, self.library = torch, library
        self.with_gradients = os.environ.get("ROOFLM_RECORD_TORCH") != "forward"
        # A range that is captured may be any step: then all are marked.
        captures = os.environ.get("ROOFLM_RECORD_CAPTURE")
        self.every = 1 if captures else max(1, _number_of("ROOFLM_RECORD_MARK_EVERY", 16))
        self.first = _number_of("ROOFLM_RECORD_SKIP", 0)
        self.steps = 0          # that have ended
        self.paths = {}         # of modules, by the numbers of their names
        self.stack = [0]        # numbers of the modules that are being called
        self.gradient = 0       # of the module whose gradient is being worked on
        self.phase = "forward"
        self.called_from = 0    # where in the modules the backward pass was called
        self.compiles = False   # code that torch.compile made has run, or may
        self.shapes = None      # of the operators of one step
        self.allocator = rooflm_allocator.Allocator(torch, library)
        self.roots, self.optimizers = weakref.WeakSet(), weakref.WeakSet()
        self.captured = None    # the graph of CUDA that is being captured
        self.sees_graphs = False  # calls of compiled graphs are ranges
        self.is_on = True       # modules are marked now
        self.own_work = library.text(b"rooflm between steps")
        self.is_traced = True   # what the device does is recorded in this step

    def put_in(self):
        self.torch.nn.Module.__call__ = self._marked_call(self.torch.nn.Module.__call__)
        _mark_backward(self)
        _mark_optimizers(self)
        _mark_replays(self)
        _watch_compiler(self)

    def switch(self, on):
        """Whether modules are marked from now on. Only between steps: what is open has to be closed."""
        if len(self.stack) == 1:
            self.is_on = on

    def _is_capturing(self):
        """Whether something else than a graph of PyTorch's own is captured. A build without CUDA cannot be asked."""
        try:
            return getattr(self.torch.cuda, "is_current_stream_capturing", lambda: False)()
        except RuntimeError:
            return False

    def end_step(self):
        # What is captured into a graph has not run, and whoever captures must not wait for the device, as the library may.
        if self.captured is not None:  # its replays are steps
            self.captured.ends_rooflm_step = True
            return
        if self._is_capturing():
            return
        # A step that is timed alone has to take what it takes without the recorder.
        if not self.is_traced and not self.allocator.is_recording:
            return self._begin_next()
        self.library.push(self.own_work, _RECORDER)
        try:
            self.allocator.end_step(self._owners)
            self._begin_next()
        finally:
            self.library.pop()

    def _begin_next(self):
        self.is_traced = self.library.end_step() != 0
        self.steps += 1
        if self.steps == 1:
            self._name_devices()
        # Compiled code has few modules, and was made with this call in it.
        place = self.steps - self.first
        self.switch(self.is_traced and (self.compiles or self.steps < _LEARNED or 0 <= place < _LEARNED or
                                        place % self.every == 0))
        self._note_shapes()
        if place == _ALLOCATIONS:
            self.allocator.begin_step(self._owners)
        if self.compiles and not self.sees_graphs:
            self.sees_graphs = _mark_compiled_graphs(self.library)

    def place(self):
        """Phase and path of the module that is at work, and whether it redoes its forward pass."""
        if self.phase == "backward":
            redone = len(self.stack) > 1 and self.stack[-1] != self.called_from
            return self.phase, self.paths.get(self.stack[-1] if redone else self.gradient, ""), redone
        return self.phase, self.paths.get(self.stack[-1], ""), False

    def _note_shapes(self):
        """Of the second step: the first one makes what later ones find."""
        if self.shapes is not None:
            self.shapes.finish()
            self.shapes = None
        elif self.steps == 1 and os.environ.get("ROOFLM_RECORD_TORCH") == "on":
            try:
                import rooflm_shapes
                if not self.compiles or rooflm_shapes.Shapes.can_see_compiled(self.torch):
                    self.shapes = rooflm_shapes.Shapes(self.torch, self.place, self.library)
                    self.shapes.stay_on()
            except Exception as problem:  # of a torch that has no such thing
                self.library.fact(b"no shapes", repr(problem).encode())

    def _name_devices(self):
        try:
            for device in range(self.torch.cuda.device_count() if self.torch.cuda.is_initialized() else 0):
                self.library.fact(f"device cuda:{device}".encode(), self.torch.cuda.get_device_name(device).encode())
        except Exception:  # names are not worth a program
            pass

    def _owners(self):
        return rooflm_allocator.find_owners(self.optimizers, self.roots)

    def name_all(self, root):
        """Every module below `root` by its path, and what it is, once."""
        self.roots.add(root)
        for path, module in root.named_modules():
            path = path or type(root).__name__
            self.compiles = self.compiles or type(module).__name__ == "OptimizedModule"
            number = self.library.text(path.encode())
            # In the module itself: an id may be another module's later.
            module.__dict__["_rooflm_number"] = number
            if number not in self.paths:
                self.paths[number] = path
                self.library.fact(b"module " + path.encode(), type(module).__name__.encode())

    def _watch(self):
        """What says when the backward pass comes to the node of a value, unless that was said already."""
        tensor, tell, hooks = self.torch.Tensor, self.library.gradient, {}

        def hook_of(number):
            def now(_):
                self.gradient = number
                tell(number)
            return now

        def watch(value, number):
            if not isinstance(value, tensor):
                # ModelOutput of transformers is a dictionary.
                several = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
                for one in several:
                    if isinstance(one, tensor):
                        value = one
                        break
            node = value.grad_fn if isinstance(value, tensor) else None
            if node is None:
                return
            metadata = node.metadata
            if "rooflm" in metadata:
                return
            metadata["rooflm"] = number
            hook = hooks.get(number)
            if hook is None:
                hook = hooks[number] = hook_of(number)
            node.register_prehook(hook)

        return watch

    def _marked_call(self, call):
        library, stack, watch = self.library, self.stack, self._watch()
        push, pop = library.push, library.pop
        is_compiling, grad_enabled = rooflm_versions.find_is_compiling(self.torch), self.torch.is_grad_enabled
        first_tensor, torch = rooflm_versions.first_tensor, self.torch

        def marked(module, *args, **kwargs):
            if is_compiling() or not self.is_on:
                return call(module, *args, **kwargs)
            number = module.__dict__.get("_rooflm_number")
            if number is None:
                self.name_all(module)
                number = module.__dict__["_rooflm_number"]
            shapes = None
            if len(stack) == 1:
                library.begin_step()
                shapes = self.shapes
            wants_gradient = self.with_gradients and grad_enabled()
            if wants_gradient:
                watch(args[0] if args else first_tensor(torch, args, kwargs), stack[-1])
            stack.append(number)
            push(number, _MODULE)
            try:
                if shapes is None:
                    result = call(module, *args, **kwargs)
                else:
                    with shapes:
                        result = call(module, *args, **kwargs)
            finally:
                pop()
                stack.pop()
            if wants_gradient:
                watch(result, number)
            return result

        return marked


def _mark_backward(marks):
    """Of everything that runs the autograd engine: backward() and grad()."""
    library = marks.library
    number = library.text(b"backward")

    def around(run):
        def marked(*args, **kwargs):
            library.push(number, _PHASE)
            before = marks.phase, marks.called_from
            marks.phase, marks.called_from, marks.gradient = "backward", marks.stack[-1], 0
            try:
                if marks.shapes is None:
                    return run(*args, **kwargs)
                with marks.shapes:
                    return run(*args, **kwargs)
            finally:
                marks.phase, marks.called_from = before
                library.pop()
        return marked

    rooflm_versions.replace_engine(marks.torch, around)


def _mark_optimizers(marks):
    """The end of an optimizer's step is that of a step of the loop; of several, the first one's."""
    from torch.optim import optimizer as module
    library = marks.library
    number = library.text(b"optimizer")
    first, entered = [], []

    def enter():
        library.push(number, _PHASE)
        marks.phase = "optimizer"
        entered.append(marks.shapes)
        if marks.shapes is not None:
            marks.shapes.__enter__()

    def leave():
        shapes = entered.pop() if entered else None
        if shapes is not None:
            shapes.__exit__(None, None, None)
        marks.phase = "forward"
        library.pop()

    def outside(closure):
        """The forward and backward pass that an optimizer calls: L-BFGS, and every optimizer of PyTorch Lightning."""
        @functools.wraps(closure)
        def marked():
            leave()
            try:
                return closure()
            finally:
                enter()
        return marked

    def before(_, args, kwargs):
        enter()
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": outside(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], outside(args[1]), *args[2:]), kwargs
        return None

    def after(optimizer, *_):
        leave()
        marks.optimizers.add(optimizer)
        if not first:
            first.append(id(optimizer))
        if first[0] == id(optimizer):
            marks.end_step()

    rooflm_versions.hook_optimizers(module, before, after)


def _mark_replays(marks):
    """A step that was captured as one graph of CUDA ends with each replay."""
    graph = getattr(marks.torch.cuda, "CUDAGraph", None)
    if graph is None or not hasattr(graph, "replay"):
        return
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    @functools.wraps(begin)
    def capture_begin(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        marks.captured = self

    @functools.wraps(end)
    def capture_end(self, *args, **kwargs):
        marks.captured = None
        return end(self, *args, **kwargs)

    @functools.wraps(replay)
    def marked_replay(self, *args, **kwargs):
        if len(marks.stack) == 1:
            marks.library.begin_step()
        replay(self, *args, **kwargs)
        if getattr(self, "ends_rooflm_step", False):
            marks.end_step()

    graph.capture_begin, graph.capture_end, graph.replay = capture_begin, capture_end, marked_replay


def _mark_compiled_graphs(library):
    """Calls of what torch.compile made of a program become ranges, called as torch.profiler calls them. False as long
    as there is none."""
    module = sys.modules.get("torch._inductor.output_code")
    graph = getattr(module, "CompiledFxGraph", None)
    call = getattr(graph, "__call__", None)
    if call is None:
        return False
    numbers = {}

    def marked(self, *args, **kwargs):
        key = getattr(self, "fx_graph_cache_key", None) or getattr(self, "cache_key", None) or ""
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = library.text(f"## Call CompiledFxGraph {key} ##".encode())
        library.push(number, _USER)
        try:
            return call(self, *args, **kwargs)
        finally:
            library.pop()

    graph.__call__ = marked
    return True


def _watch_compiler(marks):
    """Notes that torch.compile was asked for: such a step is never run in another way."""
    compile_ = getattr(marks.torch, "compile", None)
    if compile_ is None:
        return

    @functools.wraps(compile_)
    def noted(*args, **kwargs):
        marks.compiles = True
        return compile_(*args, **kwargs)

    marks.torch.compile = noted
    compile_module = getattr(marks.torch.nn.Module, "compile", None)
    if compile_module is None:
        return

    @functools.wraps(compile_module)
    def noted_module(module, *args, **kwargs):
        marks.compiles = True
        return compile_module(module, *args, **kwargs)

    marks.torch.nn.Module.compile = noted_module


def _note_memory(torch, library):
    """What the caching allocator had at most."""
    try:
        if torch.cuda.is_initialized():
            for device in range(torch.cuda.device_count()):
                library.fact(f"torch allocated cuda:{device}".encode(),
                             str(torch.cuda.max_memory_allocated(device)).encode())
                library.fact(f"torch reserved cuda:{device}".encode(),
                             str(torch.cuda.max_memory_reserved(device)).encode())
    except Exception:  # a program that broke the device before it ended
        pass
