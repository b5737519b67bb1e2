"""Records and prices of rooflm from Python: what `rooflm ... --format json` prints, as tables.

    import rooflm
    record = rooflm.open("a.rooflm")
    record.view("ops").frame()                              # a pandas table, where pandas is there
    rooflm.price(model="gpt2", batch=8)["totals"]["flop"]
    rooflm.plan(model="llama3-8b", device="h100-sxm", gpus=64)[0]["step_s"]

All work is done by the program `rooflm`: the one beside this package, of the environment variable ROOFLM_BINARY, or on
the PATH. So numbers are those of the command line, any version of Python will do, and nothing has to be compiled. Units
are SI: seconds, bytes, FLOP.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

__all__ = ["Error", "InputError", "OutOfMemory", "Record", "Table", "Unavailable", "UsageError", "command", "open", "plan", "price"]


class Error(Exception):
    """The program failed; the text is what it said."""


class UsageError(Error, ValueError):
    """An unknown option, name or value (exit code 2)."""


class InputError(Error, OSError):
    """A file that is missing, damaged or not what it should be (exit code 3)."""


class OutOfMemory(Error, MemoryError):
    """It does not fit into the memory of the device (exit code 4)."""


class Unavailable(Error, RuntimeError):
    """A device or a feature that is not here (exit code 5)."""


_ERRORS = {2: UsageError, 3: InputError, 4: OutOfMemory, 5: Unavailable}


def binary():
    """The path of the program. Throws Unavailable where there is none."""
    named = os.environ.get("ROOFLM_BINARY")
    installed = pathlib.Path(__file__).resolve().parents[4] / "bin" / "rooflm"  # PREFIX/lib/python3/dist-packages/rooflm
    found = named or (str(installed) if installed.is_file() else shutil.which("rooflm"))
    if not found:
        raise Unavailable("no program rooflm: put it on the PATH, or its path into ROOFLM_BINARY")
    return found


def _arguments(options):
    """Options as keywords: grad_accum=2 is --grad-accum 2; True is a flag, None and False are left out, lists are joined."""
    arguments = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        arguments.append("--" + name.rstrip("_").replace("_", "-"))
        if value is not True:
            arguments.append(",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
    return arguments


def command(name, *arguments, **options):
    """What `rooflm NAME ARGUMENTS --options --format json` prints, as objects.

    `rooflm.command("bench", model="tiny", steps=10)` measures. Throws the errors of this module; those of a step that does
    not fit (exit code 4) only where nothing was printed.
    """
    line = [binary(), *name.split(), *map(str, arguments), *_arguments(options), "--format", "json", "--quiet"]
    done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0 and not (done.returncode == 4 and done.stdout.strip()):
        message = done.stderr.strip().removeprefix("rooflm: ") or f"rooflm {name}: exit code {done.returncode}"
        raise _ERRORS.get(done.returncode, Error)(message)
    return json.loads(done.stdout)


@dataclasses.dataclass
class Table:
    """A table of a view: `columns` are (key, title, unit), `rows` dictionaries by key."""

    id: str
    title: str
    columns: list
    rows: list

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(self.rows)

    def column(self, key):
        """The values of one column; None where a row has none. Throws KeyError for an unknown column."""
        if all(key != known for known, _, _ in self.columns) and all(key not in row for row in self.rows):
            raise KeyError(key)
        return [row.get(key) for row in self.rows]

    def frame(self):
        """As pandas.DataFrame."""
        import pandas  # pylint: disable=import-outside-toplevel
        return pandas.DataFrame(self.rows)


class Record:
    """Run records, one or several, to be looked at by view; `rooflm report` lists the views."""

    def __init__(self, *paths):
        self.paths = [os.fspath(path) for path in paths]
        if not self.paths:
            raise UsageError("name one or more records")

    def tables(self, view, **filters):
        """All tables of a view by their ids; filters are those of `report`: run, phase, scope, op."""
        views = command("report", *self.paths, view=view, **filters)
        return {table["id"]: Table(table["id"], table["title"], [(c["key"], c["title"], c["unit"]) for c in table["columns"]],
                                   table["rows"]) for shown in views for table in shown["tables"]}

    def view(self, view, **filters):
        """The first table of a view; an empty one where the record has nothing for it."""
        return next(iter(self.tables(view, **filters).values()), Table(view, "", [], []))

    def verify(self):
        """Whether all laws of the record hold."""
        try:
            command("verify", *self.paths)
        except UsageError:
            raise
        except Error as error:
            if type(error) is Error:  # exit code 1: a law does not hold
                return False
            raise
        return True


def open(*paths):  # pylint: disable=redefined-builtin
    """Records as Record. Throws InputError for what is none."""
    record = Record(*paths)
    record.tables("overview")
    return record


def price(**options):
    """The program of a training step with what each op costs: "ops" in order and "totals" of FLOP, bytes and launches.

    Options are those of `rooflm program`: model, batch, seq, dtype, engine, device, recompute, ...
    """
    program = command("program", **options)
    program["totals"] = command("program", totals=True, **options)["totals"]
    return program


def plan(**options):
    """What `rooflm plan` predicts, a dictionary for each configuration: status, step_s, memory, tokens/s, ..."""
    plans = command("plan", **options)
    return plans if isinstance(plans, list) else [plans]
