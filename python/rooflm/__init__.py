"""Tables of run records, prices of steps, and the command line of rooflm as functions.

    import rooflm
    record = rooflm.open("a.rooflm")
    record.table("ops").columns["device_s"]                 # a list
    record.table("ops").frame()                             # a pandas table, if pandas is installed
    rooflm.price(model="gpt2", batch=8, device="h100-sxm")["totals"]["roof_s"]
    rooflm.plan(model="llama3-8b", device="h100-sxm", gpus=64)[0]["step_s"]

A compiled module (_native) reads records and prices steps in this process. `plan` and `command`, which may measure for minutes,
run the program `rooflm`: the one that the environment variable ROOFLM_BINARY names, the one installed with this package, or the
one on the PATH. Units are SI (seconds, bytes, FLOP) unless a key says another ("step_ms_median").
"""

import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from rooflm import interchange
from rooflm.errors import BY_CODE, CheckFailed, Error, InputError, OutOfMemory, Unavailable, UsageError

try:
    from rooflm import _native
except ImportError as missing:  # built without pybind11, or for another version of Python
    _native, _missing = None, str(missing)
    for _file in pathlib.Path(__file__).parent.glob("_native.*.so"):
        _missing = f"{_file.name} is for another Python than {sys.implementation.cache_tag}; plan and command work in all"

__all__ = ["CheckFailed", "Error", "InputError", "OutOfMemory", "Record", "Table", "Unavailable", "UsageError", "command", "open", "plan", "price",
           "views"]


def _compiled():
    if _native is None:
        raise Unavailable(f"the compiled module of rooflm is missing: {_missing}")
    return _native


def binary():
    """The path of the program. Raises Unavailable if it is not found."""
    named = os.environ.get("ROOFLM_BINARY")
    installed = pathlib.Path(__file__).resolve().parents[4] / "bin" / "rooflm"  # PREFIX/lib/python3/dist-packages/rooflm
    found = named or (str(installed) if installed.is_file() else shutil.which("rooflm"))
    if not found:
        raise Unavailable("the program rooflm was not found: put it on the PATH, or set ROOFLM_BINARY to its path")
    return found


def _arguments(options):
    """Options as keywords: grad_accum=2 is --grad-accum 2; True is a flag, None and False are left out, lists are joined."""
    arguments = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        arguments.append("--" + name.rstrip("_").replace("_", "-"))
        if value is not True:
            arguments.append(",".join(map(str, value)) if isinstance(value, (list, tuple, set, range)) else str(value))
    return arguments


def _run(line):
    """Exit code, standard output and standard error. An interrupt (Ctrl-C) is passed on and waited for, so that the program keeps
    what it has; a second one ends it at once. It is in a session of its own: a signal from the terminal and one from here would be two
    requests."""
    try:
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                                   start_new_session=True)
    except OSError as error:
        raise Unavailable(f"cannot start {line[0]}: {error.strerror}") from error
    with process:
        try:
            output, errors = process.communicate()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate()
            except KeyboardInterrupt:
                process.kill()
            raise
    return process.returncode, output, errors


def command(name, *arguments, **options):
    """What `rooflm NAME ARGUMENTS --options --format json` prints, as objects.

    For example `rooflm.command("bench", model="tiny", steps=10)`. Raises the errors of this module; OutOfMemory (exit code 4) only
    if nothing was printed; CheckFailed (exit code 1) has what was printed as `result`.
    """
    if not name.split():
        raise UsageError("name a command")
    line = [binary(), *name.split(), *map(str, arguments), *_arguments(options), "--format", "json", "--quiet"]
    code, output, errors = _run(line)
    try:
        result = json.loads(output) if output.strip() else None
    except ValueError as error:
        if code == 0:
            raise UsageError(f"rooflm {name}: it printed no JSON (help, or a file that goes to standard output)") from error
        result = None
    if code == 0 or (code == 4 and result is not None):
        return result
    message = errors.strip().removeprefix("rooflm: ") or f"rooflm {name}: exit code {code}"
    raise CheckFailed(message, result) if code == 1 else BY_CODE.get(code, Error)(message)


def _shown(value):
    """A cell of a table's text."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "-" if value is None else str(value)
    return text if len(text) <= 32 else text[:31] + "\u2026"


@dataclasses.dataclass(repr=False)
class Table:
    """Lists of values by column: `columns["step_s"]`, None where a row has none. `titles` and `units` by key, of the columns that
    `rooflm report` shows. Iterating yields rows as dictionaries; other libraries read it by the DataFrame interchange protocol,
    such as `polars.from_dataframe(table)`."""

    id: str
    title: str
    columns: dict
    titles: dict = dataclasses.field(default_factory=dict)
    units: dict = dataclasses.field(default_factory=dict)

    def __len__(self):
        return len(next(iter(self.columns.values()), []))

    def __iter__(self):
        for values in zip(*self.columns.values()):
            yield dict(zip(self.columns, values))

    def __repr__(self):
        """The first ten rows and first columns that fit 100 characters."""
        rows = [dict(zip(self.columns, values)) for values in itertools.islice(zip(*self.columns.values()), 10)]
        lines, left = [""] * (len(rows) + 1), []
        for name in self.columns:
            cells = [name, *(_shown(row[name]) for row in rows)]
            width = max(map(len, cells)) + 2
            if left or len(lines[0]) + width > 100:
                left.append(name)
                continue
            is_number = any(isinstance(row[name], (int, float)) for row in rows)
            lines = [line + ("  " + cell.rjust(width - 2) if is_number else "  " + cell.ljust(width - 2)) for line, cell in zip(lines, cells)]
        count = f"{len(self)} row{'' if len(self) == 1 else 's'}" + (f", also: {', '.join(left)}" if left else "")
        more = ["  ..."] if len(self) > len(rows) else []
        return "\n".join([f"{self.title or self.id} ({count})", *(line.rstrip() for line in lines if self.columns), *more])

    def __dataframe__(self, nan_as_null=False, allow_copy=True):
        return interchange.Frame(self.columns).__dataframe__(nan_as_null, allow_copy)

    def frame(self):
        """As pandas.DataFrame."""
        import pandas  # pylint: disable=import-outside-toplevel
        return pandas.DataFrame(self.columns)


def _texts(value):
    """A filter as command-line texts."""
    values = value if isinstance(value, (list, tuple, set, range)) else [value]
    return [str(one) for one in values if one is not None]


class Record:
    """One or several run records, whose views give tables; `views()` lists the views."""

    def __init__(self, *paths):
        self.paths = [os.fspath(path) for path in paths]
        if not self.paths:
            raise UsageError("name one or more records")

    def tables(self, view, run=None, phase=None, scope=None, op=None):
        """All tables of a view, of all runs or filtered as in `rooflm report`."""
        made = _compiled().tables(self.paths, view, run=_texts(run), phase=_texts(phase), scope=_texts(scope), op=_texts(op))
        return [Table(name, title, data, {key: shown for key, shown, _ in columns}, {key: unit for key, _, unit in columns if unit})
                for name, title, columns, data in made]

    def table(self, view, **filters):
        """The first table of a view; empty if the record has nothing for it."""
        return next(iter(self.tables(view, **filters)), Table(view, "", {}))

    def verify(self):
        """Whether all laws of the records hold."""
        return _compiled().verify(self.paths)


def open(*paths):  # pylint: disable=redefined-builtin
    """Opens records. Raises InputError for files that are not records."""
    record = Record(*paths)
    record.tables("overview")
    return record


def views():
    """The names of all views."""
    return _compiled().views()


def price(**options):
    """The program of a step with its cost, without running it: "ops", a table of all ops in order, and "totals" of FLOP, bytes,
    launches and memory, by phase and by block.

    Options are those of a step in `rooflm bench`, with `_` for `-` and the same defaults: model ("gpt2": a preset or a Hugging Face
    directory), batch (4), seq (64), dtype ("fp32"), engine ("fused"), attention, recompute, phase ("step", "forward",
    "prefill" or "decode"),
    the options of fp8 and of splits (dp, tp, pp_schedule, ..: the program of the first rank is priced), and layers, d_model and other
    sizes instead of the model's own. `device`, a name in the catalog of `rooflm plan`, adds the least time by its datasheet:
    "roof_s" of each op and in total.
    """
    priced = _compiled().price(**options)
    priced["ops"] = Table("ops", "Ops", priced["ops"])
    return priced


def plan(**options):
    """What `rooflm plan` predicts, one dictionary per configuration: status, step_s, memory, tokens/s, ..."""
    plans = command("plan", **options)
    return plans if isinstance(plans, list) else [plans]
