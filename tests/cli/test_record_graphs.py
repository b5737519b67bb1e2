"""rooflm record: whose the kernels of CUDA graphs are, from streams."""
import os
import sys
import unittest

import streams

ROOFLM = os.path.abspath(sys.argv.pop(1))
US = 1000
KERNELS = ["embed", "gemm", "gemm_back", "adam"]


def captured_step(replays=6, extra_capture=(), reordered=False):
    """A step that is captured once, with its modules and phases, and then replayed; graphs are numbered backwards."""
    stream = streams.Stream()
    main, autograd = stream.process, stream.process + 1
    stream.facts.update({"torch": "2.11", "module layers.0": "Block"})
    now = 1000 * US
    begin = now
    for name in extra_capture:
        stream.capture("cudaStreamBeginCapture_v10000", now)
        stream.capture(name, now + 10)
        stream.capture("cudaStreamEndCapture_v10000", now + 20)
        now += 100
    stream.capture("cudaStreamBeginCapture_v10000", now)
    stream.capture("cudaLaunchKernel", now + 10)                # embed: of no module
    stream.row(streams.RANGE, "layers.0", now + 20, now + 600, main, what=streams.MODULE)
    stream.capture("cudaLaunchKernel", now + 100)               # gemm
    stream.row(streams.API, "cuLaunchKernelEx", now + 110, now + 120, main, stream.correlation)
    stream.capture("cudaMemsetAsync", now + 200)
    stream.row(streams.RANGE, "backward", now + 1000, now + 2000, main, what=streams.PHASE)
    stream.row(streams.MARK, "layers.0", now + 1100, now + 1100, autograd, what=streams.GRADIENT)
    stream.capture("cuLaunchKernelEx", now + 1200, autograd)    # gemm_back
    stream.row(streams.RANGE, "optimizer", now + 2100, now + 2900, main, what=streams.PHASE)
    stream.capture("cudaLaunchKernel", now + 2200)              # adam
    stream.capture("cudaStreamEndCapture_v10000", now + 3000)
    now += 100 * US
    for _ in range(replays):
        times = [(now + 10 * US + 20 * US * i, now + 25 * US + 20 * US * i) for i in range(5)]
        kinds = [streams.KERNEL, streams.KERNEL, streams.MEMSET, streams.KERNEL, streams.KERNEL]
        if reordered:
            kinds[1], kinds[2] = kinds[2], kinds[1]
        names = ["embed", "gemm", "memset", "gemm_back", "adam"]
        stream.replay(now, [(i + 1, kind, name, *time) for i, (kind, name, time) in enumerate(zip(kinds, names, times))])
        stream.row(streams.RANGE, "step", begin, now + 120 * US, main, what=streams.STEP)
        begin = now + 120 * US
        now += 130 * US
    return stream


class Graphs(streams.Case):
    binary = ROOFLM

    def owners(self, stream):
        self.import_stream(stream)
        rows = self.rows("SELECT DISTINCT n.text, op.phase, op.scope FROM activity a JOIN activity_name n USING (run, name)"
                         " JOIN op USING (run, op) WHERE n.kind = 'kernel'")
        return {name: (phase, scope) for name, phase, scope in rows}

    def test_kernels_are_of_the_modules_that_were_captured(self):
        self.assertEqual(self.owners(captured_step()), {
            "embed": ("forward", "other"), "gemm": ("forward", "h.0/itself"), "gemm_back": ("backward", "h.0/itself"),
            "adam": ("optimizer", "optimizer")})

    def test_other_captures_before_are_told_apart(self):
        self.assertEqual(self.owners(captured_step(extra_capture=["cudaLaunchKernel", "cudaMemcpyAsync"]))["gemm_back"],
                         ("backward", "h.0/itself"))

    def test_a_graph_that_no_capture_fits_is_of_nobody(self):
        self.assertEqual(set(self.owners(captured_step(reordered=True)).values()), {("forward", "other")})


if __name__ == "__main__":
    unittest.main()
