# Marks modules, the backward pass and optimizers of PyTorch in a program that `rooflm record` runs.
"""Marks are calls of the injection library, about 0.3 us each; nothing is imported that torch does not have.

A module's forward pass is a range named after its path. Its backward pass has no place in Python: the autograd graph
is asked to say when it comes to what a module made (a hook on the node of its output) and when it goes back to what
called it (one on the nodes of its inputs); kernels that autograd starts in between are that module's.
"""
import atexit
import ctypes
import os

_PHASE, _MODULE = 2, 3  # kinds of ranges, as the library numbers them
marked_call = plain_call = None  # of torch.nn.Module, and whether gradients are marked:
gradients = [True]               # scripts/record_cost.py switches them


class _Library:
    def __init__(self):
        # Without releasing the interpreter's lock: the calls are shorter than that would take.
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
        self.begin_step.restype = self.end_step.restype = None
        self.fact = library.rooflm_fact
        self.fact.restype, self.fact.argtypes = None, [ctypes.c_char_p, ctypes.c_char_p]


def mark(torch):
    """Puts the marks in. `torch` is the module, just loaded."""
    library = _Library()
    if not library.begin():
        return
    library.fact(b"torch", torch.__version__.encode())
    gradients[0] = os.environ.get("ROOFLM_RECORD_TORCH") != "forward"
    _mark_modules(torch, library, gradients)
    _mark_backward(torch, library)
    _mark_optimizers(torch, library)
    atexit.register(_note_memory, torch, library)


def _mark_modules(torch, library, with_gradients):
    global marked_call, plain_call
    module_type = torch.nn.Module
    call = plain_call = module_type.__call__
    named = set()  # numbers of paths whose module is described
    stack = [0]  # numbers of the modules that are being called
    is_compiling = torch.compiler.is_compiling
    grad_enabled = torch.is_grad_enabled
    tensor = torch.Tensor
    push, pop, text, gradient, fact = (library.push, library.pop, library.text, library.gradient, library.fact)

    def name_all(root):
        """Every module below `root` by its path, and what it is, once."""
        for path, module in root.named_modules():
            path = path or type(root).__name__
            number = text(path.encode())
            # In the module itself: an id may be another module's later.
            module.__dict__["_rooflm_number"] = number
            if number not in named:
                named.add(number)
                fact(b"module " + path.encode(), type(module).__name__.encode())

    def hook_of(number):
        def now(_):
            gradient(number)
        return now

    hooks = {}

    def watch(value, number):
        """Says when the backward pass comes to the node of `value`, unless that was said already."""
        if type(value) is tuple or type(value) is list:
            for one in value:
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

    def marked(self, *args, **kwargs):
        if is_compiling():
            return call(self, *args, **kwargs)
        number = self.__dict__.get("_rooflm_number")
        if number is None:
            name_all(self)
            number = self.__dict__["_rooflm_number"]
        if len(stack) == 1:
            library.begin_step()
        wants_gradient = with_gradients[0] and grad_enabled()
        if wants_gradient and args:
            watch(args[0], stack[-1])
        stack.append(number)
        push(number, _MODULE)
        try:
            result = call(self, *args, **kwargs)
        finally:
            pop()
            stack.pop()
        if wants_gradient:
            watch(result, number)
        return result

    module_type.__call__ = marked_call = marked


def _mark_backward(torch, library):
    """Of everything that runs the autograd engine: backward() and grad()."""
    number = library.text(b"backward")

    def around(run):
        def marked(*args, **kwargs):
            library.push(number, _PHASE)
            try:
                return run(*args, **kwargs)
            finally:
                library.pop()
        return marked

    for holder in (torch.autograd, torch.autograd.graph):
        run = getattr(holder, "_engine_run_backward", None)
        if run is not None:
            holder._engine_run_backward = around(run)


def _mark_optimizers(torch, library):
    """The end of an optimizer's step is that of a step of the loop; of several, the first one's."""
    from torch.optim import optimizer as module
    number = library.text(b"optimizer")
    first = []

    def before(*_):
        library.push(number, _PHASE)

    def after(optimizer, *_):
        library.pop()
        if not first:
            first.append(id(optimizer))
        if first[0] == id(optimizer):
            library.end_step()

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


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
