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
        return types.SimpleNamespace(nbytes=lambda: self.held)


class Mode:
    open = []

    def __enter__(self):
        Mode.open.append(self)

    def __exit__(self, *_):
        Mode.open.pop()


def make_torch():
    dispatch = types.ModuleType("torch.utils._python_dispatch")
    dispatch.TorchDispatchMode = Mode
    for name, module in (("torch", types.ModuleType("torch")), ("torch.utils", types.ModuleType("torch.utils")),
                         ("torch.utils._python_dispatch", dispatch)):
        sys.modules[name] = module
    matmul = types.SimpleNamespace(allow_tf32=True)
    return types.SimpleNamespace(
        Tensor=Tensor, backends=types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=matmul)))


def operator(name, *arguments, result=None):
    schema = types.SimpleNamespace(name=name, arguments=[types.SimpleNamespace(name=one) for one in arguments])

    def func(*_, **__):
        return result
    func._schema = schema
    return func


class Library:
    def __init__(self):
        self.facts = {}

    def fact(self, key, value):
        self.facts[key.decode()] = value.decode()


class ShapesTest(unittest.TestCase):
    def setUp(self):
        self.where = ("forward", "h.0.mlp", False)
        self.shapes = rooflm_shapes.Shapes(make_torch(), lambda: self.where)

    def run_operator(self, func, *args, **kwargs):
        return Mode.open[-1].__torch_dispatch__(func, (), args, kwargs)

    def notes(self):
        library = Library()
        self.shapes.finish(library)
        return [json.loads(text) for key, text in library.facts.items() if key.startswith("work ")], library.facts

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
