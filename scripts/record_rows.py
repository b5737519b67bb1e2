"""What records of programs whose work is known have to have: rows of scripts/gpu_record, several at once."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import sqlite3
import sys
import time

from limited_run import run

INJECT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "inject"
SOURCE, TRAINING = INJECT / "cuda_program.cu", INJECT / "torch_program.py"
STEPS = 20
KERNELS, COPIES, MEMSETS = 2, 1, 1  # of a step of the program
# Mode, expected exit code (negative: a signal), processes with kernels, and whether all of their work must be there.
MODES = [("plain", 0, 1, True), ("graph", 0, 1, True), ("fork", 0, 2, True), ("late-fork", 0, 1, True),
         ("kill", -9, 1, True), ("crash", -6, 1, False), ("exit", 3, 1, False)]
# Mode, expected exit code, phases, and the least share of the kernels' time in steps that has to be of a module.
TRAININGS = [("llama-compile", 0, 3, 0.5), ("ddp-compile", 0, 3, 0.5), ("reduce", 0, 3, 0.5), ("compile", 0, 3, 0.5),
             ("eager", 0, 3, 0.5), ("llama", 0, 3, 0.5), ("callables", 0, 3, 0.5), ("graph", 0, 3, 0.5), ("ddp", 0, 3, 0.5),
             ("fork", 0, 3, 0.5), ("crash", -6, 3, 0.5), ("kill", -9, 3, 0.5), ("exit", 3, 3, 0.5)]
RANKS = ["llama-ddp-compile", "ddp-compile", "ddp"]  # on two GPUs
AT_ONCE = 6


class Checks:
    def __init__(self):
        self.good = True

    def hold(self, what, is_good, seen=""):
        print(f"{'ok  ' if is_good else 'FAIL'}  {what}{f': {seen}' if seen != '' else ''}", flush=True)
        self.good = self.good and is_good

    @staticmethod
    def compare(what, is_reached, seen):
        """A cost is no failure: machines differ. But it is never ok where it was missed."""
        print(f"{'reached' if is_reached else 'MISSED '}  {what}: {seen}", flush=True)


class Setting:
    """What all rows share: the recorder, a folder for records, seconds for one program and for all of them together."""

    def __init__(self, rooflm, folder, limit_s, part_s=float("inf"), modules=None):
        self.rooflm, self.folder, self.limit_s = rooflm, folder, limit_s
        self.until = time.monotonic() + part_s
        # Has the program read the recorder's Python modules from a folder, not those that the binary brings.
        self.environment = ["env", f"PYTHONPATH={os.path.abspath(modules)}"] if modules else []

    def left_s(self):
        return min(self.limit_s, self.until - time.monotonic())

    def run(self, command):
        left = self.left_s()
        return run(command, self.folder, left) if left > 0 else (124, "", "not run: the time of this part is up\n")

    def record(self, name, program, options=()):
        return self.run([self.rooflm, "record", "--overwrite", "-o", name, *options, "--", *self.environment, *program])

    def path(self, name):
        return os.path.join(self.folder, name)


def counts_of(record):
    """How many activities of each kind, by run."""
    database = sqlite3.connect(record)
    rows = database.execute("SELECT a.run, n.kind, COUNT(*) FROM activity a JOIN activity_name n USING (run, name)"
                            " GROUP BY 1, 2").fetchall()
    runs = [number for (number,) in database.execute("SELECT id FROM run")]
    database.close()
    return {number: {kind: count for run_number, kind, count in rows if run_number == number} for number in runs}


def last_line(text):
    return text.strip().splitlines()[-1] if text.strip() else ""


def record_program(setting, program, mode):
    """Faults of one way in which the CUDA program runs, and what was seen."""
    _, expected, processes, is_whole = next(row for row in MODES if row[0] == mode)
    code, text, errors = setting.record(f"{mode}.rooflm", [program, mode, str(STEPS)])
    faults = [] if code == expected and f"{STEPS} steps" in text else [f"exit code {code}, output {text.strip()!r}: {errors[-600:]}"]
    record = setting.path(f"{mode}.rooflm")
    if not os.path.exists(record):
        return [*faults, "no record"], ""
    seen = [run_counts for run_counts in counts_of(record).values() if run_counts.get("kernel") or not is_whole]
    wanted = {"kernel": KERNELS * STEPS, "copy": COPIES * STEPS, "memset": MEMSETS * STEPS}
    if len(seen) != processes:
        faults.append(f"{len(seen)} processes, not {processes}")
    if is_whole and any(one.get(kind) != count for one in seen for kind, count in wanted.items()):
        faults.append(f"not all of its work: {seen}")
    code, text, errors = setting.run([setting.rooflm, "verify", f"{mode}.rooflm"])
    return faults if code == 0 else [*faults, errors], last_line(text)


def check_programs(setting, program, checks):
    """The CUDA program, compiled here unless it is given, in all of its modes."""
    if not program:
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        code, _, errors = setting.run([nvcc, "-O2", "-o", "program", str(SOURCE)])
        if code != 0:
            return checks.hold("nvcc compiles the program", False, errors[-500:])
        program = setting.path("program")
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        modes = [mode for mode, *_ in MODES]
        for mode, (faults, verdict) in zip(modes, pool.map(lambda mode: record_program(setting, program, mode), modes)):
            checks.hold(f"CUDA program, {mode}", not faults, "; ".join(faults) or verdict)
    return None


def seen_of(record):
    """Of the run with most kernels: steps, phases, milliseconds of kernels in a step, the shares of their time that are of
    a phase and of a module, what was lost, blocks of memory and the share of them that is named."""
    database = sqlite3.connect(record)
    def one(query, *values):
        found = database.execute(query, values).fetchone()
        return 0 if found is None else found[0]
    run_number = one("SELECT run FROM activity JOIN activity_name n USING (run, name) WHERE n.kind = 'kernel'"
                     " GROUP BY run ORDER BY COUNT(*) DESC LIMIT 1")
    steps = one("SELECT COUNT(*) FROM sample WHERE run = ? AND phase = 'step'", run_number)
    in_steps = ("SELECT TOTAL(a.end_ns - a.start_ns) FROM activity a JOIN activity_name n USING (run, name) LEFT JOIN op"
                " ON op.run = a.run AND op.op = a.op WHERE a.run = ? AND n.kind = 'kernel' AND a.step IS NOT NULL")
    total = one(in_steps, run_number)
    observed = one("SELECT COUNT(DISTINCT step) FROM event WHERE run = ?", run_number)
    blocks = one("SELECT TOTAL(bytes) FROM tensor WHERE run = ?", run_number)
    seen = {"steps": steps, "ms": 1e-6 * total / max(1, observed),
            "phases": [phase for phase, in database.execute("SELECT DISTINCT phase FROM op WHERE run = ?", (run_number,))],
            "of_phase": one(in_steps + " AND a.op IS NOT NULL", run_number) / max(1, total),
            "of_module": one(in_steps + " AND op.scope IS NOT 'other' AND a.op IS NOT NULL", run_number) / max(1, total),
            "lost": one("SELECT TOTAL(value) FROM fact WHERE key = 'trace_lost'"),
            "blocks": one("SELECT COUNT(*) FROM tensor WHERE run = ?", run_number),
            "named": one("SELECT TOTAL(bytes) FROM tensor WHERE run = ? AND role <> 'other'", run_number) / max(1, blocks),
            "collectives": one("SELECT COUNT(*) FROM activity JOIN activity_name n USING (run, name)"
                               " WHERE run = ? AND n.kind = 'communication'", run_number)}
    database.close()
    return seen


def record_training(setting, mode, ranks=0):
    """Runs one way of training under the recorder, as several ranks where they are given: exit code, what it said, seconds, and
    the records that are there, verified and reported."""
    name = f"{mode}-%q{{RANK}}.rooflm" if ranks else f"torch-{mode}.rooflm"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else []
    start = time.monotonic()
    code, text, errors = setting.record(name, [sys.executable, *launcher, str(TRAINING), mode], ["--trace-every", "1"] if ranks else [])
    took = time.monotonic() - start
    names = [f"{mode}-{rank}.rooflm" for rank in range(ranks)] if ranks else [name]
    records = [name for name in names if os.path.exists(setting.path(name))]
    verified = max([setting.run([setting.rooflm, "verify", record])[0] for record in records], default=1)
    reported = setting.run([setting.rooflm, "report", *records, "--html", f"{records[0]}.html", "--overwrite"])[0] if records else 1
    return code, text, errors, took, records, verified, reported


def print_training(name, wanted, setting, outcome, checks):
    """A line of the table; below it what the recorder and the program said."""
    (expected, phases, least), (code, text, errors, took, records, verified, reported) = wanted, outcome
    if not records:
        return checks.hold(f"{name}: a record", False, f"exit code {code}: {(text + errors).strip()[-2000:]}")
    for record in records:
        seen = seen_of(setting.path(record))
        good = (code == expected and verified == 0 and reported == 0 and seen["steps"] > 2 and seen["lost"] == 0
                and len(seen["phases"]) >= phases and seen["of_module"] >= least)
        checks.good = checks.good and good
        print(f"{name:20} {code:4} {took:5.1f} {seen['steps']:5} {seen['ms']:7.3f} {seen['of_phase']:6.1%} {seen['of_module']:6.1%} "
              f"{seen['lost']:4.0f} {seen['blocks']:6} {seen['named']:6.1%} {seen['collectives']:4}  {verified} {reported} "
              f"{'' if good else 'FAIL ' + str(seen['phases'])}", flush=True)
    for line in errors.splitlines():
        if line.startswith("rooflm:") or (line.startswith("record: ") and ".rooflm: " not in line):
            print(f"    {line[:200]}")
    if code != expected:
        print("    " + "\n    ".join(line[:300] for line in errors.strip().splitlines()[-60:]), flush=True)
    return None


def check_waiting(setting, mode, checks):
    """Of two ranks' records: their collectives on one clock."""
    _, text, errors = setting.run([setting.rooflm, "report", f"{mode}-0.rooflm", f"{mode}-1.rooflm", "--view", "collectives",
                                   "--format", "json"])
    rows = [row for view in json.loads(text or "[]") for table in view["tables"] if table["id"] == "collectives"
            for row in table["rows"] if row["op"] == "AllReduce"]
    is_good = bool(rows) and all(row["ranks"] == 2 and row["waiting_s"] is not None and row["busbw"] > 0 for row in rows)
    seen = [{key: row[key] for key in ("bytes", "calls", "waiting_s", "busbw") if key in row} for row in rows]
    checks.hold(f"{mode}: all-reduces with waiting apart from transfer", is_good, seen or errors[-300:])


def gpus_here(setting):
    return setting.run(["nvidia-smi", "-L"])[1].count("GPU ") if shutil.which("nvidia-smi") else 0


def check_trainings(setting, trainings, ranks, checks):
    """What the record of each way of training has, alone (those whose mode matches `trainings`) and on two GPUs (`ranks`)."""
    several = [mode for mode in RANKS if ranks and re.fullmatch(ranks, mode)]
    if several and gpus_here(setting) < 2:
        print("SKIPPED: DDP on two GPUs: there are fewer")
        several = []
    rows = [(f"{mode} x 2", mode, 2, (0, 3, 0.5)) for mode in several]
    rows += [(mode, mode, 0, wanted) for mode, *wanted in TRAININGS if trainings and re.fullmatch(trainings, mode)]
    print(f"\n{'mode':20} {'exit':>4} {'s':>5} {'steps':>5} {'ms':>7} {'phase':>6} {'module':>6} {'lost':>4} {'blocks':>6} {'named':>6} "
          f"{'coll':>4}  verify, report", flush=True)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = [pool.submit(record_training, setting, mode, count) for _, mode, count, _ in rows]
        for (name, _, _, wanted), job in zip(rows, jobs):
            print_training(name, wanted, setting, job.result(), checks)
    for mode in several:
        check_waiting(setting, mode, checks)
