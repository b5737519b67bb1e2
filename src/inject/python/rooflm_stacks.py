# Samples where the threads of a Python program are in their code.
"""The injection library samples threads: those that run in a signal handler on the thread itself, those that wait from a thread of
its own. It reads the interpreter's frames without its lock, once `_Layout` has found where they are, and notes addresses. A thread of
Python's own names these. Where the layout is not found (another interpreter, a system that forbids looking) that thread looks at all
threads a hundred times a second; each time it has to wait until the program gives up the lock, 5 ms at most.
"""
import atexit
import ctypes
import os
import struct
import sys
import threading
import types

_MOST_FRAMES = 64
_WORD = 8
_SEEN = 128    # bytes of a frame that the library reads


class _Library:
    """What of the library this needs; with its lock released while it waits."""

    def __init__(self):
        path = os.environ["CUDA_INJECTION64_PATH"]
        kept, free = ctypes.PyDLL(path), ctypes.CDLL(path)
        wide, offset = ctypes.c_uint64, ctypes.c_int64
        self.peek = kept.rooflm_peek
        self.peek.argtypes = [wide, ctypes.c_char_p, wide]
        self.python = kept.rooflm_python
        self.python.argtypes = [offset] * 5
        self.wait = free.rooflm_wait_for_unnamed
        self.python_threads = kept.rooflm_python_threads
        self.python_threads.argtypes = [wide] + [offset] * 3
        self.next_unnamed = kept.rooflm_next_unnamed
        self.next_unnamed.argtypes = [ctypes.POINTER(wide)] * 2


class _Layout:
    """Offsets of what a thread's state and its frames hold, found by looking for what is known to be there. `problem` says
    what was not found."""

    def __init__(self, peek):
        self._peek, self.problem = peek, ""
        self.state, self.thread = _state(), threading.get_native_id()
        try:
            self._find()
        except LookupError as problem:
            self.problem = str(problem)

    def _words(self, address, count):
        buffer = ctypes.create_string_buffer(count * _WORD)
        if not address or not self._peek(address, buffer, count * _WORD):
            return ()
        return struct.unpack(f"{count}Q", buffer.raw)

    def _find(self):
        def inner():
            return self._look(sys._getframe())
        return inner()

    def _look(self, frame):
        """From its own frame and those of `_find` and its function within, which called it."""
        chain = [sys._getframe(), frame, frame.f_back]
        frames = [self._interpreters(one) for one in chain]
        words = [self._words(address, _SEEN // _WORD) for address in frames]
        self.code = self._common("the code of a frame", [[word & ~7 == id(one.f_code) for word in seen]
                                                         for one, seen in zip(chain, words)])
        self.previous = self._common("the caller of a frame", [[word == above for word in seen]
                                                               for above, seen in zip(frames[1:], words)])
        # Of frames that have called: their instruction stands.
        self.instruction = self._common("the place in a frame's code", [
            [0 < word - id(one.f_code) - one.f_lasti < one.f_code.__sizeof__() for word in seen]
            for one, seen in zip(chain[1:], words[1:])])
        starts = {seen[self.instruction // _WORD] - id(one.f_code) - one.f_lasti for one, seen in zip(chain[1:], words[1:])}
        if len(starts) != 1:
            raise LookupError("where code begins was not found")
        self.start = starts.pop()
        self._find_current()

    def _interpreters(self, frame):
        """The address of what the interpreter itself keeps of a frame."""
        for word in self._words(id(frame), 8)[2:]:
            if any(held & ~7 == id(frame.f_code) for held in self._words(word, _SEEN // _WORD)[:8]):
                return word
        raise LookupError("the interpreter's frames were not found")

    @staticmethod
    def _common(what, matches):
        """The one offset at which all of them match."""
        places = set.intersection(*({place for place, good in enumerate(each) if good} for each in matches))
        if len(places) != 1:
            raise LookupError(f"{what} was not found")
        return places.pop() * _WORD

    def _find_current(self):
        """Where a thread's state names its current frame, which is this one: there, or one step further (until 3.12)."""
        own = self._interpreters(sys._getframe())
        words, further = (ctypes.c_uint64 * 40)(), (ctypes.c_uint64 * 2)()
        # No function of Python is called while it is looked at: it would be the current one.
        self._peek(self.state, ctypes.cast(words, ctypes.c_char_p), ctypes.sizeof(words))
        for steps in (0, 1):
            for place, word in enumerate(words):
                if steps == 1 and not self._peek(word, ctypes.cast(further, ctypes.c_char_p), ctypes.sizeof(further)):
                    continue
                for more, held in enumerate(further if steps == 1 else (word,)):
                    if held == own:
                        self.frame, self.inner = place * _WORD, more * _WORD if steps == 1 else -1
                        return
        raise LookupError("a thread's current frame was not found")

    def find_threads(self):
        """The calling thread's state, and offsets of its neighbours in the interpreter's list of threads, which has the thread that made
        `_Layout` too, and of the number by which the system knows a thread. Called by another thread than that."""
        states = [self.state, _state()]
        words = [self._words(state, 64) for state in states]
        number = self._common("the number of a thread", [[word == one for word in seen]
                                                         for one, seen in zip((self.thread, threading.get_native_id()), words)])
        numbers = {int(name) for name in os.listdir("/proc/self/task")}
        links = {place * _WORD for seen, state in zip(words, states) for place, word in enumerate(seen[:8])
                 if word not in (0, state) and self._words(word, 64)[number // _WORD:][:1] in {(one,) for one in numbers}}
        if len(links) != 2:
            raise LookupError("the list of threads was not found")
        return (states[1], *sorted(links), number)


def _state():
    """The address of the calling thread's state."""
    find = ctypes.pythonapi.PyThreadState_Get
    find.restype = ctypes.c_void_p
    return find()


class Sampler(threading.Thread):
    """With `layout` it only names what the library has seen, else it looks at all threads."""

    def __init__(self, library, hertz):
        super().__init__(name="rooflm samples stacks", daemon=True)
        self.library, self.pause_s, self.ending = library, 1 / hertz, threading.Event()
        self.native, self.layout = _Library(), None
        self.known = {}    # numbers of stacks, by code and line of each frame
        self.numbers = {}  # of threads, as the operating system has them
        self.codes = {}    # by their addresses, which are not another one's as long as they are here
        self.unnamed, self.looks = [], 0

    def find_layout(self):
        layout = _Layout(self.native.peek)
        if layout.problem:
            self.library.fact(b"no layout", layout.problem.encode())
            self.native.python(-1, -1, -1, -1, -1)
        elif self.native.python(layout.frame, layout.inner, layout.code, layout.previous, layout.instruction):
            self.layout = layout

    def run(self):
        if self.layout is None:
            while not self.ending.wait(self.pause_s):
                self.sample()
            return
        try:
            self.native.python_threads(*self.layout.find_threads())
        except (LookupError, OSError) as problem:
            self.library.fact(b"no python threads", str(problem).encode())
        while self.native.wait() and not self.ending.is_set():
            self.name()

    def end(self):
        self.ending.set()
        if self.layout is not None:
            self.name()

    def sample(self):
        own = threading.get_ident()
        for thread, frame in sys._current_frames().items():
            if thread != own:
                self.library.stack(self.number_of(frame), self.system_number(thread))

    def number_of(self, frame):
        frames = []
        while frame is not None and len(frames) < _MOST_FRAMES:
            if not frame.f_code.co_filename.endswith("rooflm_torch.py"):  # what stands between the program's calls
                frames.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        key = tuple((id(code), line) for code, line in frames)
        number = self.known.get(key)
        if number is None:
            text = ";".join(describe(code, line) for code, line in reversed(frames))
            number = self.known[key] = self.library.text(text.encode(errors="replace"))
            for code, _ in frames:
                self.codes[id(code)] = code
        return number

    def system_number(self, thread):
        number = self.numbers.get(thread)
        if number is None:
            for one in threading.enumerate():
                self.numbers[one.ident] = one.native_id or 0
            number = self.numbers.setdefault(thread, 0)
        return number

    def name(self):
        """Names the places that the library has seen, as far as their code is still there."""
        code, offset = ctypes.c_uint64(), ctypes.c_uint64()
        while self.native.next_unnamed(code, offset):
            self.unnamed.append((code.value, offset.value))
        if not self.unnamed:
            return
        if any(code not in self.codes for code, _ in self.unnamed):
            self.find_codes()
        for code, offset in self.unnamed:
            if code in self.codes:
                found = self.codes[code]
                text = describe(found, line_of(found, offset - self.layout.start))
                self.library.fact(b"code %x+%x" % (code, offset), text.encode(errors="replace"))
        self.unnamed.clear()

    def find_codes(self):
        """Of what runs now; and of all functions, which takes long, ever more seldom."""
        for frame in sys._current_frames().values():
            while frame is not None:
                self.codes[id(frame.f_code)] = frame.f_code
                frame = frame.f_back
        self.looks += 1
        if self.looks & (self.looks - 1) == 0:
            for code in codes_of_modules():
                self.add_code(code)

    def add_code(self, code):
        self.codes[id(code)] = code
        for constant in code.co_consts:
            if type(constant) is type(code) and id(constant) not in self.codes:
                self.add_code(constant)


def codes_of_modules():
    """Of the functions and methods of all modules, and of what they wrap. Not of all objects that the garbage collector knows: to hold
    those for a moment makes an error of a tuple that another thread has begun. Nothing of theirs is called: types are asked for as they
    are, since proxies answer for what they stand for."""
    for module in list(sys.modules.values()):
        if not issubclass(type(module), types.ModuleType):
            continue
        for value in list(object.__getattribute__(module, "__dict__").values()):
            members = list(type.__getattribute__(value, "__dict__").values()) if issubclass(type(value), type) else (value,)
            for member in members:
                if type(member) in (staticmethod, classmethod):
                    member = member.__func__
                elif type(member) is property:
                    member = member.fget
                while type(member) is types.FunctionType:
                    yield member.__code__
                    member = member.__dict__.get("__wrapped__")


def line_of(code, offset):
    for begin, end, line in code.co_lines():
        if begin <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def describe(code, line):
    """"forward (train.py:12)"."""
    name = getattr(code, "co_qualname", code.co_name)
    return f"{name} ({os.path.basename(code.co_filename)}:{line})".replace(";", ":")


def start(library):
    """Begins, where the recorder asked for it. The sampler, or None."""
    hertz, _, kind = os.environ.get("ROOFLM_RECORD_STACKS", "0").partition(",")
    try:
        hertz = float(hertz)
    except ValueError:
        return None
    if not 0 < hertz <= 1000 or "native" in kind.split(","):
        return None
    sampler = Sampler(library, hertz)
    sampler.find_layout()
    atexit.register(sampler.end)
    sampler.start()
    return sampler
