# What PyTorch's caching allocator gives out and takes back: each block in one step, sums at the end of every recorded step.
"""The allocator keeps its own history (torch.cuda.memory), of which no stacks are asked for: they would cost most of it. One
step is recorded so, the third: it is marked, what the first ones make is there, and the second, in which shapes are noted, is
over. The history is read once, at that step's end. A program that keeps one by itself is left alone.
"""
import time

_MOST_ENTRIES = 200_000


class Allocator:
    """Of the process; does nothing without CUDA."""

    def __init__(self, torch, library):
        self.cuda, self.library = torch.cuda, library
        self.is_recording, self.is_theirs, self.is_broken = False, False, False
        self.names = {what: library.text(b"torch_" + what + b"_bytes") for what in (b"allocated", b"reserved")}
        self.devices, self.seen = None, set()  # those that have given something out
        self._watch_others()

    def _watch_others(self):
        """Notes that the program asks for a history of its own."""
        memory = getattr(self.cuda, "memory", None)
        self.record = getattr(memory, "_record_memory_history", None)
        if self.record is None:
            return

        def noted(*args, **kwargs):
            self.is_theirs, self.is_recording = True, False
            return self.record(*args, **kwargs)

        memory._record_memory_history = noted

    def begin_step(self, owners):
        """The step that begins now is recorded block by block. `owners()` as find_owners."""
        if self.record is None or self.is_theirs or self.is_broken or not self._is_on():
            return
        try:
            self._name(owners, "begin")
            self.record(enabled="all", context=None, stacks="python", max_entries=_MOST_ENTRIES)
            self.is_recording = True
        except Exception as problem:  # of a torch that has no such history
            self._give_up(problem)

    def end_step(self, owners):
        """A step ended: what is allocated now, and, where it was recorded, each of its blocks."""
        if not self._is_on() or self.is_broken:
            return
        try:
            self._note_sums()
            if self.is_recording and not self.is_theirs:
                self.is_recording = False
                snapshot = self.cuda.memory._snapshot()
                # Two clocks, read together: what the allocator says of times counts from 1970.
                offset = time.monotonic_ns() - time.time_ns()
                self.record(enabled=None)
                self._name(owners, "end")
                self._hand_over(snapshot, offset)
        except Exception as problem:  # the program goes on
            self._give_up(problem)

    def _name(self, owners, when):
        """Says which memory is whose at the step's begin or end."""
        for tensor, role, name in owners():
            tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
            if tensor.is_cuda:
                self.library.fact(f"{when} cuda:{tensor.device.index or 0} {tensor.data_ptr()}".encode(),
                                  f"{role} {name}".encode())

    def _is_on(self):
        return hasattr(self.cuda, "is_initialized") and self.cuda.is_initialized()

    def _give_up(self, problem):
        self.is_broken = True
        self.library.fact(b"no allocator", repr(problem).encode())

    def _note_sums(self):
        for device in range(self.cuda.device_count()) if self.devices is None else self.devices:
            now = self.cuda.memory.memory_stats_as_nested_dict(device)
            for what in (b"allocated", b"reserved"):
                amount = now[what.decode() + "_bytes"]["all"]["current"] if now else 0
                if amount > 0:
                    self.library.amount(self.names[what], device, amount)
                    self.seen.add(device)
        if self.seen and self.devices is None:
            self.devices = sorted(self.seen)  # to ask all of them takes time

    def _hand_over(self, snapshot, offset):
        """Blocks that are there at the end and were not seen to be taken were there before: their time is 0."""
        block, taken = self.library.block, set()
        for device, entries in enumerate(snapshot.get("device_traces", ())):
            for entry in entries:
                is_taken = entry["action"] == "alloc"
                if not is_taken and entry["action"] != "free_completed":
                    continue
                if is_taken:
                    taken.add((device, entry["addr"]))
                block(device, entry["addr"], entry["size"] if is_taken else -entry["size"],
                      entry["time_us"] * 1000 + offset)
        for segment in snapshot.get("segments", ()):
            address = segment["address"]
            for part in segment["blocks"]:
                address = part.get("address", address)
                if part["state"].startswith("active") and (segment["device"], address) not in taken:
                    block(segment["device"], address, part["size"], 0)
                address += part["size"]


def find_owners(optimizers, roots):
    """Tensors that outlive a step, with their role and name: parameters, their gradients, optimizers' state, buffers."""
    names = {}
    for root in roots:
        for path, parameter in root.named_parameters():
            names.setdefault(id(parameter), path)
        for path, buffer in root.named_buffers():
            yield buffer, "buffer", path
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = names.get(id(parameter), "parameter")
                yield parameter, "weight", name
                if parameter.grad is not None:
                    yield parameter.grad, "gradient", name + ".grad"
                for key, value in optimizer.state.get(parameter, {}).items():
                    if hasattr(value, "data_ptr"):
                        yield value, "optimizer_state", f"{name}.{key}"
