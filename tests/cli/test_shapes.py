"""The recorder's notes of operators (src/inject/python/rooflm_shapes.py), on a stand-in for torch."""
import json
import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "src" / "inject" / "python"))
import rooflm_shapes  # noqa: E402: it is found on that path


class Tensor:
    def __init__(self, *shape, dtype="torch.bfloat16", held=None, is_cuda=True):
        self.shape, self.dtype, self.is_cuda = shape, dtype, is_cuda
        self.held = self.numel() * self.element_size() if held is None else held

    def numel(self):
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def element_size(self):
        return 4 if "32" in self.dtype else 2

    def untyped_storage(self):
        return types.SimpleNamespace(nbytes=lambda: self.held, data_ptr=lambda: id(self))

    def sum(self):
        return self

    def item(self):
        return self.total


class Spread(Tensor):
    """A tensor that is spread over ranks: it is as large as all of it, and holds a part."""

    def __init__(self, local, *shape):
        super().__init__(*shape)
        self._local_tensor = local

    def __tensor_flatten__(self):
        return ["_local_tensor"], None


class Mode:
    open = []

    def __enter__(self):
        Mode.open.append(self)

    def __exit__(self, *_):
        Mode.open.pop()


def make_torch():
    dispatch = types.ModuleType("torch.utils._python_dispatch")
    dispatch.TorchDispatchMode = Mode
    dispatch._get_current_dispatch_mode_stack = lambda: list(Mode.open)
    for name, module in (("torch", types.ModuleType("torch")), ("torch.utils", types.ModuleType("torch.utils")),
                         ("torch.utils._python_dispatch", dispatch)):
        sys.modules[name] = module
    matmul = types.SimpleNamespace(allow_tf32=True)
    device = types.SimpleNamespace(L2_cache_size=1000)
    return types.SimpleNamespace(
        Tensor=Tensor, backends=types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=matmul)),
        cuda=types.SimpleNamespace(current_device=lambda: 0, get_device_properties=lambda _: device))


def operator(name, *arguments, result=None):
    schema = types.SimpleNamespace(name=name, arguments=[types.SimpleNamespace(name=one) for one in arguments])

    def func(*_, **__):
        return result
    func._schema = schema
    return func


class Library:
    def __init__(self):
        self.facts, self.open, self.ranges = {}, [], []

    def push(self, number, kind):
        self.open.append((number, kind))

    def pop(self):
        self.ranges.append(self.open.pop())

    def fact(self, key, value):
        self.facts[key.decode()] = value.decode()


class ShapesTest(unittest.TestCase):
    def setUp(self):
        self.where = ("forward", "h.0.mlp", False)
        Mode.open.clear()
        self.library = Library()
        self.shapes = rooflm_shapes.Shapes(make_torch(), lambda: self.where, self.library)

    def run_operator(self, func, *args, **kwargs):
        return Mode.open[-1].__torch_dispatch__(func, (), args, kwargs)

    def notes(self):
        self.shapes.finish()
        facts = self.library.facts
        return [json.loads(text) for key, text in facts.items() if key.startswith("work ")], facts

    def test_calls_with_the_same_shapes_are_one_note(self):
        out = Tensor(8, 4)
        with self.shapes:
            for _ in range(3):
                self.assertIs(self.run_operator(operator("aten::mm", result=out), Tensor(8, 2), Tensor(2, 4)), out)
            self.where = ("backward", "h.0.mlp", True)
            self.run_operator(operator("aten::mm", result=out), Tensor(8, 2), Tensor(2, 4))
        notes, _ = self.notes()
        self.assertEqual([(note["n"], note["phase"], note["again"]) for note in notes], [(3, "forward", 0), (1, "backward", 1)])
        self.assertEqual(notes[0]["in"], [["bfloat16", [8, 2]], ["bfloat16", [2, 4]]])
        self.assertEqual((notes[0]["out"], notes[0]["tf32"]), ([["bfloat16", [8, 4]]], 1))

    def test_lists_expanded_tensors_and_causal_attention(self):
        attention = operator("aten::_scaled_dot_product_flash_attention", "query", "is_causal", result=(Tensor(1), None))
        with self.shapes:
            self.run_operator(operator("aten::_foreach_add_"), [Tensor(8, dtype="torch.float32"), Tensor(4)], 1.0)
            self.run_operator(operator("aten::mul", result=Tensor(8, 4)), Tensor(8, 4, held=16), Tensor(8, 4))
            self.run_operator(attention, Tensor(2, 2), True)
            self.run_operator(attention, Tensor(2, 2), is_causal=False)
        notes, _ = self.notes()
        self.assertEqual(notes[0]["in"], [["list", "float32", [12]]])
        self.assertEqual(notes[1]["in"][0], ["bfloat16", [8, 4], 16])
        self.assertEqual([note["causal"] for note in notes], [0, 0, 1, 0])

    def test_it_is_entered_once_and_leaves_out_what_is_on_the_host(self):
        with self.shapes:
            with self.shapes:
                self.assertEqual(len(Mode.open), 1)
            self.run_operator(operator("aten::add", result=Tensor(2, is_cuda=False)), Tensor(2, is_cuda=False))
        self.assertEqual(len(Mode.open), 0)
        self.assertEqual(self.notes()[0], [])

    def test_each_call_is_a_range(self):
        with self.shapes:
            for rows in (8, 4, 8):
                self.run_operator(operator("aten::mm", result=Tensor(rows, 4)), Tensor(rows, 2), Tensor(2, 4))
        notes, _ = self.notes()
        self.assertEqual([note["calls"] for note in notes], [[1, 3], [2]])
        self.assertEqual((self.library.ranges, self.library.open), ([(1, 12), (2, 12), (3, 12)], []))

    def test_what_is_written_into_is_no_input(self):
        out = Tensor(8, 4)
        with self.shapes:
            self.run_operator(operator("aten::mm", result=out), Tensor(8, 2), Tensor(2, 4), out=out)
            self.run_operator(operator("fsdp::chunk_cat"), [Tensor(3), Tensor(2)], 0, 2, out=Tensor(6))
        notes, _ = self.notes()
        self.assertEqual([len(note["in"]) for note in notes], [2, 1])
        self.assertEqual(notes[1]["out"], [["bfloat16", [6]]])

    def test_tensors_that_are_spread_over_ranks_count_as_what_is_here(self):
        spread = Spread(Tensor(4, 4), 16, 4)
        with self.shapes:
            result = Mode.open[-1].__torch_dispatch__(operator("aten::mul_", result=spread), (Spread,), (spread, 2.0))
            self.assertIs(result, NotImplemented, "its own operators come here")
            self.run_operator(operator("aten::_fused_adamw_"), [spread, spread], [spread, spread])
        notes, _ = self.notes()
        self.assertEqual([note["in"] for note in notes], [[["list", "bfloat16", [32]]] * 2])

    def test_operators_of_a_step_are_noted_between_modules_too(self):
        self.shapes.stay_on()
        with self.shapes:
            pass
        self.run_operator(operator("aten::add", result=Tensor(2)), Tensor(2))
        notes, _ = self.notes()
        self.assertEqual((len(notes), len(Mode.open)), (1, 0))

    def test_a_mode_of_the_program_that_is_on_stays_the_innermost(self):
        theirs = Mode()
        with theirs:
            self.shapes.stay_on()
            self.assertEqual(Mode.open, [theirs])
        self.shapes.finish()

    def test_a_mode_that_was_opened_since_is_not_closed(self):
        self.shapes.stay_on()
        theirs = Mode()
        with theirs:
            self.shapes.finish()
            self.assertIs(Mode.open[-1], theirs)
        Mode.open.clear()

    def test_inputs_that_no_cache_holds_are_told_apart(self):
        weight, other, out = Tensor(300), Tensor(1500), Tensor(300)  # 600, 3000 and 600 bytes; the cache has 1000
        add = operator("aten::add", result=out)
        with self.shapes:
            self.run_operator(add, weight)
            self.run_operator(add, weight)
            self.run_operator(operator("aten::neg", result=other), other)
            self.run_operator(add, weight)
        notes, _ = self.notes()
        self.assertEqual([(note["n"], note["cold"]) for note in notes], [(3, 200), (1, 3000)])

    def kernel(self, *names, **meta):
        function = types.SimpleNamespace(arg_names=names, __name__="triton_")
        return types.SimpleNamespace(fn=function, inductor_meta=meta)

    def test_kernels_of_inductor_are_priced_by_their_pointers(self):
        kernel = self.kernel("in_ptr0", "in_ptr1", "in_out_ptr0", "out_ptr0", "xnumel", "r0_numel", "XBLOCK",
                             kernel_name="triton_red_fused_add_0")
        table, rows = Tensor(1000, 8), Tensor(4, 8)
        with self.shapes.calling() as call:
            pass
        self.shapes._note_inductor(call, kernel, (table, rows, rows, Tensor(4), 4, 8), {})
        notes, _ = self.notes()
        self.assertEqual(notes[0]["op"], "triton::triton_red_fused_add_0")
        self.assertEqual(notes[0]["in"], [["bfloat16", [1000, 8], 64], ["bfloat16", [4, 8]], ["bfloat16", [4, 8]]])
        self.assertEqual(notes[0]["out"], [["bfloat16", [4, 8]], ["bfloat16", [4]]])

    def test_templates_of_inductor_are_products_and_attention(self):
        matmul = self.kernel("arg_A", "arg_B", "in_ptr2", "out_ptr0")
        self.shapes._note_inductor(1, matmul, (Tensor(8, 2), Tensor(2, 4), Tensor(4), Tensor(8, 4)), {})
        flex = self.kernel("arg_Q", "arg_K", "arg_V", "arg_LSE", "arg_KV_NUM_BLKS", "arg_KV_IDX", "arg_FULL_KV_NUM_BLKS",
                           "out_ptr0")
        some, full = Tensor(1, 1, 4), Tensor(1, 1, 4)
        some.total, full.total = 4, 6
        q = Tensor(2, 4, 512, 64)
        self.shapes._note_inductor(2, flex, (q, q, q, Tensor(2), some, Tensor(1, 1, 4, 4), full, q), {})
        notes, _ = self.notes()
        self.assertEqual([note["op"] for note in notes], ["triton::mm", "triton::flex_attention"])
        self.assertEqual([len(note["in"]) for note in notes], [3, 3])
        self.assertEqual(notes[1]["needed"], 0.5, "four blocks of a causal mask are cut, six are whole, of 16")

    def test_launches_of_triton_are_noted_for_the_step_alone(self):
        class JITFunction:
            def run(self, *args, grid, warmup):
                return "ran"
        run = JITFunction.run
        sys.modules["triton.runtime.jit"] = types.SimpleNamespace(JITFunction=JITFunction)
        try:
            self.shapes = rooflm_shapes.Shapes(make_torch(), lambda: self.where, self.library)
        finally:
            del sys.modules["triton.runtime.jit"]
        kernel = JITFunction()
        kernel.__name__ = "swiglu"
        self.assertEqual(kernel.run(Tensor(8), Tensor(8), 8, grid=(1,), warmup=False), "ran")
        kernel.run(Tensor(8), grid=(1,), warmup=True)
        notes, _ = self.notes()
        self.assertEqual([(note["op"], len(note["in"])) for note in notes], [("triton::swiglu", 2)])
        self.assertIs(JITFunction.run, run)

    def test_what_goes_wrong_is_said_and_changes_nothing(self):
        def broken():
            raise ValueError("no place")
        self.shapes.place = broken
        with self.shapes:
            self.assertEqual(self.run_operator(operator("aten::mm", result=7), Tensor(2)), 7)
        notes, facts = self.notes()
        self.assertEqual((notes, facts["no shapes"]), ([], "ValueError('no place')"))


if __name__ == "__main__":
    unittest.main()
