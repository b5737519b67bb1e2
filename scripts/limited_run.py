"""Runs a program with a time limit. At the limit it says where each of its processes was, and ends all of them.

All descendants are found by a variable of their environment, so also those that began a session of their own (torchrun's ranks).
Programs of Python get PYTHONFAULTHANDLER=1: SIGABRT makes them print the stack of every thread.
"""
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import uuid

MARK = "ROOFLM_LIMITED_RUN"
STACKS_S = 1.5  # for the stacks to be printed
RECORD_S = 8  # for the recorder, which ends by itself once its program has, to write the record


def processes_of(mark):
    """Numbers of the processes that have this mark in their environment, zombies excluded."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass
    return sorted(found)


def read(path):
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "?"


def describe(number):
    """A line: process, parent, command, and of each thread its name and where in the system it waits."""
    folder = pathlib.Path("/proc", str(number))
    parent = next((line.split()[1] for line in read(folder / "status").splitlines() if line.startswith("PPid:")), "?")
    try:
        tasks = sorted((folder / "task").iterdir())
    except OSError:
        tasks = []
    threads = [f"{read(task / 'comm')}:{read(task / 'wchan')}" for task in tasks]
    shown = ", ".join(threads[:8]) + (f", {len(threads) - 8} more" if len(threads) > 8 else "")
    return f"{number} (of {parent}) {read(folder / 'cmdline')[:120]}: {shown}"


def send(numbers, which):
    for number in numbers:
        try:
            os.kill(number, which)
        except OSError:
            pass


def end_all(process, mark):
    """What the processes were doing. The first one may end by itself after the others did."""
    numbers = processes_of(mark)
    lines = [describe(number) for number in numbers]
    others = [number for number in numbers if number != process.pid]
    send(others, signal.SIGABRT)
    time.sleep(STACKS_S)
    send(set(processes_of(mark)) - {process.pid}, signal.SIGKILL)
    try:
        process.wait(RECORD_S if others else 0)
    except subprocess.TimeoutExpired:
        pass
    send({*processes_of(mark), process.pid}, signal.SIGKILL)
    process.wait()
    return lines


def run(command, folder, limit_s, environment=None):
    """Exit code (124: the limit was reached), standard output, standard error and what the processes were doing at the limit."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **(environment or {}), MARK: mark}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors) as process:
            lines = None
            try:
                process.wait(max(0, limit_s))
            except subprocess.TimeoutExpired:
                lines = end_all(process, mark)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if lines is not None:
        return 124, texts[0], texts[1] + f"\nstopped after {limit_s:.0f} s; its processes were:\n" + "\n".join(lines) + "\n"
    return process.returncode, texts[0], texts[1]
