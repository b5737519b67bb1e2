"""The recorder's reading of what XLA made of a program (src/inject/python/rooflm_jax.py), on a text of HLO."""
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

MODULES = pathlib.Path(__file__).resolve().parents[2] / "src" / "inject" / "python"
sys.path.insert(0, str(MODULES))
import rooflm_jax  # noqa: E402: it is found on that path

TEXT = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(bf16[16000,512]{1,0})->(bf16[4096,512]{1,0})}

%fused_gather (p0: bf16[16000,512], p1: s32[8,512]) -> bf16[8,512,512] {
  %p0 = bf16[16000,512]{1,0} parameter(0)
  %p1 = s32[8,512]{1,0} parameter(1)
  ROOT %gather.1 = bf16[8,512,512]{2,1,0} gather(%p0, %p1), offset_dims={2}
}

%fused_update (p0.1: f32[64,32], p1.1: f32[4,32], p2.1: s32[]) -> f32[64,32] {
  %p0.1 = f32[64,32]{1,0} parameter(0)
  %p1.1 = f32[4,32]{1,0} parameter(1)
  %p2.1 = s32[] parameter(2)
  ROOT %update = f32[64,32]{1,0} dynamic-update-slice(%p0.1, %p1.1, %p2.1, %p2.1)
}

%gemm_computation (a: bf16[4096,512], b: bf16[512,1536]) -> bf16[4096,1536] {
  %a = bf16[4096,512]{1,0} parameter(0)
  %b = bf16[512,1536]{1,0} parameter(1)
  ROOT %dot.1 = bf16[4096,1536]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%command_buffer (q: bf16[4096,512], w.1: bf16[512,1536]) -> bf16[4096,1536] {
  %q = bf16[4096,512]{1,0} parameter(0)
  %w.1 = bf16[512,1536]{1,0} parameter(1)
  ROOT %gemm_fusion_dot.5 = bf16[4096,1536]{1,0} fusion(%q, %w.1), kind=kCustom, calls=%gemm_computation, \
metadata={op_name="jit(step)/jvp(layers_0)/attn/dot_general" source_file="/x/train.py" source_line=12}
}

ENTRY %main.99 (e: bf16[16000,512], x: s32[8,512], w: bf16[512,1536]) -> (bf16[4096,512]) {
  %e = bf16[16000,512]{1,0} parameter(0), metadata={op_name="p['e']"}
  %x = s32[8,512]{1,0} parameter(1)
  %w = bf16[512,1536]{1,0} parameter(2)
  %cache = f32[64,32]{1,0} constant({...})
  %new = f32[4,32]{1,0} constant({...})
  %zero = s32[] constant(0)
  %loop_gather_fusion = bf16[8,512,512]{2,1,0} fusion(%e, %x), kind=kLoop, calls=%fused_gather
  %loop_update_fusion = f32[64,32]{1,0} fusion(%cache, %new, %zero), kind=kLoop, calls=%fused_update
  %bitcast.3 = bf16[4096,512]{1,0} bitcast(%loop_gather_fusion)
  %call = bf16[4096,1536]{1,0} call(%bitcast.3, %w), to_apply=%command_buffer
  %custom-call.1 = (bf16[4096,512]{1,0}, s8[4194304]{0}) custom-call(%call, %w), custom_call_target="__cublas$gemm", \
metadata={op_name="jit(step)/transpose(jvp(layers_0))/attn/dot_general"}, backend_config={"gemm_backend_config":\
{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["1"]}}}
  %get-tuple-element = bf16[4096,512]{1,0} get-tuple-element(%custom-call.1), index=0
  ROOT %tuple = (bf16[4096,512]{1,0}) tuple(%get-tuple-element)
}
"""


class HloTest(unittest.TestCase):
    def setUp(self):
        self.program = rooflm_jax.Program(TEXT)
        self.rows = {row["name"]: row for row in self.program.rows()}

    def test_what_launches_something_is_there_in_the_order_of_the_schedule(self):
        self.assertEqual(self.program.name, "jit_step")
        self.assertEqual(list(self.rows), ["loop_gather_fusion", "loop_update_fusion", "gemm_fusion_dot_5", "custom_call_1"])

    def test_products_have_flop_and_names(self):
        row = self.rows["gemm_fusion_dot_5"]
        self.assertEqual((row["flop"], row["dtype"]), (2 * 4096 * 512 * 1536, "bf16"))
        self.assertEqual((row["op"], row["at"]), ("jit(step)/jvp(layers_0)/attn/dot_general", "train.py:12"))
        self.assertEqual(row["bytes"], 2 * (4096 * 512 + 512 * 1536 + 4096 * 1536))
        row = self.rows["custom_call_1"]
        self.assertEqual((row["call"], row["flop"]), ("__cublas$gemm", 2 * 4096 * 512 * 1536))
        self.assertEqual(row["bytes"], 2 * (4096 * 1536 + 512 * 1536 + 4096 * 512), "without its scratch memory")

    def test_loops_launch_their_body_as_often_as_they_run(self):
        text = TEXT.replace("%call = bf16[4096,1536]{1,0} call(%bitcast.3, %w), to_apply=%command_buffer",
                            "%call = bf16[4096,1536]{1,0} while(%bitcast.3), condition=%c, body=%command_buffer, "
                            'backend_config={"known_trip_count":{"n":"3"}}')
        names = [row["name"] for row in rooflm_jax.Program(text).rows()]
        self.assertEqual(names[2:], 3 * ["gemm_fusion_dot_5"] + ["custom_call_1"])

    def test_places_may_be_in_tables(self):
        tables = ('\nFileNames\n1 "/x/train.py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n'
                  "4 {file_name_id=1 function_name_id=1 line=31 end_line=31 column=4}\n\nStackFrames\n"
                  "9 {file_location_id=4 parent_frame_id=1}\n")
        text = TEXT.replace("\n\n", "\n" + tables + "\n", 1).replace('source_file="/x/train.py" source_line=12', "stack_frame_id=9")
        rows = {row["name"]: row for row in rooflm_jax.Program(text).rows()}
        self.assertEqual(rows["gemm_fusion_dot_5"]["at"], "train.py:31")

    def test_what_is_looked_up_or_changed_in_its_place_is_not_moved_as_a_whole(self):
        self.assertEqual(self.rows["loop_gather_fusion"]["bytes"], 2 * 2 * 8 * 512 * 512 + 4 * 8 * 512)
        self.assertEqual(self.rows["loop_update_fusion"]["bytes"], 2 * 4 * 4 * 32 + 4)

    def test_what_is_worked_out_before_a_look_up_is_not_read_as_a_whole(self):
        text = TEXT.replace("  ROOT %gather.1 = bf16[8,512,512]{2,1,0} gather(%p0, %p1), offset_dims={2}",
                            "  %log.1 = bf16[16000,512]{1,0} log(%p0)\n"
                            "  ROOT %gather.1 = bf16[8,1,512]{2,1,0} gather(%log.1, %p1), offset_dims={2}")
        text = text.replace("%loop_gather_fusion = bf16[8,512,512]", "%loop_gather_fusion = bf16[8,1,512]")
        rows = {row["name"]: row for row in rooflm_jax.Program(text).rows()}
        self.assertEqual(rows["loop_gather_fusion"]["bytes"], 2 * 2 * 8 * 512 + 4 * 8 * 512)

    def test_a_package_that_was_only_looked_for_is_marked_once_it_is_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "jax.py").write_text("x = 7\n")
            script = "import importlib.util; importlib.util.find_spec('jax'); import jax; print(jax.x)"
            environment = {**os.environ, "PYTHONPATH": f"{MODULES}:{folder}", "ROOFLM_RECORD_FOLDER": folder}
            environment.pop("CUDA_INJECTION64_PATH", None)  # so that marking fails, and says so
            done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60,
                                  check=True)
        self.assertEqual(done.stdout, "7\n")
        self.assertEqual(done.stderr.count("rooflm: jax is not marked"), 1)

    def test_programs_are_handed_over_as_they_are_compiled(self):
        facts, compiler = {}, types.SimpleNamespace(compile_or_get_cached=lambda what: what)
        library = types.SimpleNamespace(begin=lambda: 1, fact=lambda key, value: facts.__setitem__(key.decode(), value))
        modules = {"rooflm_torch": types.SimpleNamespace(Library=lambda: library), "jax": types.ModuleType("jax"),
                   "jax._src": types.SimpleNamespace(compiler=compiler)}
        executable = types.SimpleNamespace(hlo_modules=lambda: [types.SimpleNamespace(to_string=lambda: TEXT)])
        before = {name: sys.modules.get(name) for name in modules}
        sys.modules.update(modules)
        try:
            rooflm_jax.mark(types.SimpleNamespace(__version__="0.11"))
        finally:
            for name, module in before.items():
                sys.modules.pop(name) if module is None else sys.modules.__setitem__(name, module)
        self.assertIs(compiler.compile_or_get_cached(executable), executable)
        self.assertEqual(facts["hlo 0"], b"jit_step")
        self.assertIn("hlo 0 3", facts)
        self.assertEqual(compiler.compile_or_get_cached(7), 7)
        self.assertIn("no hlo", facts)


if __name__ == "__main__":
    unittest.main()
