"""The errors of rooflm, by the exit codes of the command line."""


class Error(Exception):
    """A failure; the text says why."""


class CheckFailed(Error):
    """A check found something: a law of `verify`, a gate of `compare` (exit code 1). `result`: what the command printed."""

    def __init__(self, message, result=None):
        super().__init__(message)
        self.result = result


class UsageError(Error, ValueError):
    """An unknown option, name or value (exit code 2)."""


class InputError(Error, OSError):
    """A file that is missing, damaged or not what it should be (exit code 3)."""


class OutOfMemory(Error, MemoryError):
    """Does not fit into the memory of the device (exit code 4)."""


class Unavailable(Error, RuntimeError):
    """A device or a feature that is not here (exit code 5)."""


BY_CODE = {1: CheckFailed, 2: UsageError, 3: InputError, 4: OutOfMemory, 5: Unavailable}
