# What XLA made of a JAX program: the instructions that its kernels run, for which part of the program, and their FLOP and bytes.
"""Each program that JAX compiles is asked for the text of its optimized HLO once. Its instructions that launch something are facts, in
the order of its schedule; kernels that run in the range of such a program are told apart by that order and by their names.
"""
import itertools
import json
import math
import re

_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8,
          "c64": 8, "c128": 16, "token": 0, "opaque": 0}
_RATES = {"bf16": "bf16", "f16": "fp16", "f32": "tf32", "f64": "fp64"}
_NOTHING = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
            "add-dependency", "opt-barrier"}  # launch nothing
_WHOLE = {"reduce", "reduce-window", "select-and-scatter", "dot", "convolution", "sort", "scatter", "fusion", "call", "custom-call",
          "while", "map", "cholesky", "triangular-solve", "fft"}  # one element of theirs may need all of an operand
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = (\(.*?\)|\w+\[[^\]]*\](?:\{[^}]*\})?) ([\w\-]+)\((.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
_MOST_TEXT = 64 << 20
_MOST_ROWS = 20_000


def mark(jax):
    """Puts the mark in. `jax` is the module, just loaded."""
    import rooflm_torch
    library = rooflm_torch.Library()
    if not library.begin():
        return
    library.fact(b"jax", jax.__version__.encode())
    from jax._src import compiler
    run, programs = compiler.compile_or_get_cached, []

    def noted(*args, **kwargs):
        executable = run(*args, **kwargs)
        try:
            for text in _texts_of(executable):
                _hand_over(library, len(programs), text)
                programs.append(None)
        except Exception as problem:  # the program goes on
            library.fact(b"no hlo", repr(problem).encode())
        return executable

    compiler.compile_or_get_cached = noted


def _texts_of(executable):
    try:
        return [module.to_string() for module in executable.hlo_modules()]
    except Exception:
        return [executable.get_hlo_text()]


def _hand_over(library, number, text):
    if len(text) > _MOST_TEXT:
        return
    program = Program(text)
    for place, row in enumerate(list(program.rows())):
        library.fact(b"hlo %d %d" % (number, place), json.dumps(row, separators=(",", ":")).encode())
    library.fact(b"hlo %d" % number, program.name.encode())


class _Instruction:
    def __init__(self, match):
        is_root, self.name, shape, self.opcode, self.rest = match.groups()
        self.is_root, self.number = bool(is_root), self.rest.split(")")[0]  # of a parameter
        self.shapes = [(kind, [int(one) for one in extents.split(",") if one]) for kind, extents in _SHAPE.findall(shape)]
        depth, end = 1, 0
        while end < len(self.rest) and depth:
            depth += {"(": 1, ")": -1}.get(self.rest[end], 0)
            end += 1
        self.operands = re.findall(r"%([\w.\-]+)", self.rest[:end]) or re.findall(r"([A-Za-z_][\w.\-]*)(?=[,)])", self.rest[:end])
        self.rest = self.rest[end:]

    def attribute(self, key):
        """computation=%fused.3, or {1,2}, or "text"."""
        found = re.search(r"\b" + key + r'=(?:%?([\w.\-]+)|\{([^}]*)\}|"([^"]*)")', self.rest)
        return next(one for one in found.groups() if one is not None) if found else ""

    def elements(self):
        return sum(math.prod(extents) for _, extents in self.shapes)

    def bytes(self, but_scratch=False):
        """Of a call of a library it has scratch memory, too, which need not be written."""
        return sum(math.prod(extents) * _bytes_of(kind) for kind, extents in self.shapes
                   if not (but_scratch and len(self.shapes) > 1 and kind in ("s8", "u8")))


def _bytes_of(kind):
    return _BYTES.get(kind, 1)


def _extents_text(instruction):
    return "[" + ",".join(map(str, instruction.shapes[0][1])) + "]" if instruction and instruction.shapes else "[]"


class Program:
    """The instructions of a text of HLO."""

    def __init__(self, text):
        found = re.match(r"HloModule ([^\s,]+)", text)
        self.name, self.entry, self.computations, inside = found.group(1) if found else "", "", {}, None
        self.tables, table = {}, {}  # of places in the program's code
        for line in text.splitlines():
            if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
                table = self.tables.setdefault(line, {})
            elif line[:1].isdigit():
                number, _, row = line.partition(" ")
                table[number] = row.strip('"')
            elif line.startswith("}"):
                inside = None
            elif inside is None:
                begun = _COMPUTATION.match(line)
                if begun:
                    inside = self.computations[begun.group(2)] = {}
                    self.entry = begun.group(2) if begun.group(1) else self.entry
            else:
                match = _INSTRUCTION.match(line)
                if match:
                    inside[match.group(2)] = _Instruction(match)

    def rows(self):
        """One for each instruction that launches something, as often as it does."""
        known = {}
        for one, inside in itertools.islice(self._launched(self.entry), _MOST_ROWS):
            if id(one) not in known:
                known[id(one)] = self._row(one, inside)
            yield known[id(one)]

    def _launched(self, computation, depth=0):
        inside = self.computations.get(computation, {})
        for one in inside.values():
            if one.opcode in _NOTHING or one.opcode.endswith("-done"):
                continue
            body = one.attribute("to_apply") if one.opcode == "call" else one.attribute("body") if one.opcode == "while" else ""
            if body and depth < 8:
                times = re.search(r'"known_trip_count":\{"n":"(\d+)"', one.rest)
                for _ in range(int(times.group(1)) if times else 1):
                    yield from self._launched(body, depth + 1)
            else:
                yield one, inside

    def _row(self, one, inside):
        operands = [inside[name] for name in one.operands if name in inside]
        read, written = self._moved(one, operands)
        flop, dtype, needed = self._flop(one, operands)
        return {"name": re.sub(r"[.\-]", "_", one.name), "call": one.attribute("custom_call_target") or one.opcode,
                "op": one.attribute("op_name"), "at": self._place(one),
                "dtype": dtype, "flop": flop, "needed": needed, "bytes": read + written,
                "shapes": " x ".join(map(_extents_text, operands[:3])) + " -> " + _extents_text(one)}

    def _place(self, one):
        """"train.py:12", by the instruction itself or by the tables of its text."""
        source, line = one.attribute("source_file"), one.attribute("source_line")
        frame = self.tables.get("StackFrames", {}).get(one.attribute("stack_frame_id"), "")
        location = re.search(r"file_location_id=(\d+)", frame)
        if not source and location:
            row = self.tables.get("FileLocations", {}).get(location.group(1), "")
            file, at = re.search(r"file_name_id=(\d+)", row), re.search(r"\bline=(\d+)", row)
            source = self.tables.get("FileNames", {}).get(file.group(1), "") if file else ""
            line = at.group(1) if at else ""
        return f"{source.rsplit('/', 1)[-1]}:{line}" if source else ""

    def _moved(self, one, operands):
        """Bytes read and written: of what is only sliced the slices, of what is changed in its place the changes."""
        written, sizes = one.bytes(one.opcode == "custom-call"), [operand.bytes() for operand in operands]
        body = self.computations.get(one.attribute("calls"), {})
        parameters = {int(part.number): name for name, part in body.items()
                      if part.opcode == "parameter" and part.number.isdigit()}
        needed = self._needed(body)
        for place, name in parameters.items():
            if place < len(sizes) and body[name].elements():
                sizes[place] = sizes[place] * needed.get(name, 0) // body[name].elements()
        for change, update in (("dynamic-update-slice", 1), ("scatter", 2)):
            for user in body.values():
                if user.opcode != change or len(user.operands) <= update or user.operands[update] not in body:
                    continue
                place = next((place for place, name in parameters.items() if name == user.operands[0]), None)
                if place is not None and place < len(sizes):
                    sizes[place] = 0
                if user.is_root:
                    written = min(written, body[user.operands[update]].bytes())
        return sum(sizes), written

    @staticmethod
    def _needed(body):
        """How many elements of each instruction its users want at most: of a table from which some are gathered, those."""
        needed = {}
        for one in reversed(body.values()):
            wanted = one.elements() if one.is_root else needed.get(one.name, 0)
            for name in one.operands if wanted else ():
                size = body[name].elements() if name in body else 0
                more = size if one.opcode in _WHOLE else min(size, wanted)
                needed[name] = min(size, needed.get(name, 0) + more)
        return needed

    def _flop(self, one, operands):
        """Of its products, their dtype, and those that are needed."""
        if one.opcode == "dot" and operands:
            return self._product(one, operands, one.attribute("lhs_contracting_dims"))
        target = one.attribute("custom_call_target")
        if target.startswith("__cublas") and operands:
            found = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', one.rest)
            return self._product(one, operands, found.group(1) if found else "")
        if "fmha" in target and operands and len(operands[0].shapes[0][1]) == 4:
            kind, (batch, a, b, width) = operands[0].shapes[0]
            flop = 4 * batch * a * b * max(a, b) * width * (2 if "Backward" in target else 1)
            return flop, _RATES.get(kind, ""), flop // 2 if "CAUSAL" in one.rest else flop
        flop, dtype, body = 0, "", self.computations.get(one.attribute("calls"), {})
        for part in body.values():
            if part.opcode in ("dot", "fusion"):
                more, kind, _ = self._flop(part, [body[name] for name in part.operands if name in body])
                flop, dtype = flop + more, kind or dtype
        return flop, dtype, flop

    @staticmethod
    def _product(one, operands, contracted):
        kind, extents = operands[0].shapes[0]
        places = [int(place) for place in re.findall(r"\d+", contracted)]
        length = math.prod(extents[place] for place in places if place < len(extents))
        flop = 2 * math.prod(one.shapes[0][1]) * length
        return flop, _RATES.get(kind, "fp8" if kind.startswith("f8") else ""), flop
