# Samples where the threads of a Python program are in their code.
"""A thread of its own wakes up, looks at the frames of all other threads, and goes back to sleep: no signal, which would
interrupt the program's system calls. It has to wait until the program gives up the interpreter's lock, 5 ms at most.
"""
import atexit
import os
import sys
import threading

_MOST_FRAMES = 64


class Sampler(threading.Thread):
    def __init__(self, library, hertz):
        super().__init__(name="rooflm samples stacks", daemon=True)
        self.library, self.pause_s, self.ending = library, 1 / hertz, threading.Event()
        self.known = {}    # numbers of stacks, by code and line of each frame
        self.numbers = {}  # of threads, as the operating system has them
        self.kept = []     # code: its address is not another one's as long as it is here

    def run(self):
        while not self.ending.wait(self.pause_s):
            self.sample()

    def sample(self):
        own = threading.get_ident()
        for thread, frame in sys._current_frames().items():
            if thread != own:
                self.library.stack(self.number_of(frame), self.system_number(thread))

    def number_of(self, frame):
        frames = []
        while frame is not None and len(frames) < _MOST_FRAMES:
            frames.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        key = tuple((id(code), line) for code, line in frames)
        number = self.known.get(key)
        if number is None:
            text = ";".join(describe(code, line) for code, line in reversed(frames))
            number = self.known[key] = self.library.text(text.encode(errors="replace"))
            self.kept.append([code for code, _ in frames])
        return number

    def system_number(self, thread):
        number = self.numbers.get(thread)
        if number is None:
            for one in threading.enumerate():
                self.numbers[one.ident] = one.native_id or 0
            number = self.numbers.setdefault(thread, 0)
        return number


def describe(code, line):
    """"forward (train.py:12)"."""
    name = getattr(code, "co_qualname", code.co_name)
    return f"{name} ({os.path.basename(code.co_filename)}:{line})".replace(";", ":")


def start(library):
    """Begins, where the recorder asked for it. The sampler, or None."""
    try:
        hertz = float(os.environ.get("ROOFLM_RECORD_STACKS", "0"))
    except ValueError:
        return None
    if not 0 < hertz <= 1000:
        return None
    sampler = Sampler(library, hertz)
    atexit.register(sampler.ending.set)
    sampler.start()
    return sampler
