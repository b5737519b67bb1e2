// What operators of PyTorch cost by their shapes, and notes that are lies.
#include "foreign/operator_work.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rooflm::foreign {
namespace {

using Shape = std::vector<std::int64_t>;

TensorNote half(Shape shape) { return {.dtype = "bfloat16", .shape = std::move(shape)}; }
TensorNote whole(Shape shape) { return {.dtype = "float32", .shape = std::move(shape)}; }

OperatorWork work(const std::string& op, std::vector<TensorNote> in, std::vector<TensorNote> out,
                  bool is_causal = false) {
  return work_of({.op = "aten::" + op, .is_causal = is_causal, .in = std::move(in), .out = std::move(out)})
      .value();
}

TEST(OperatorWork, ProductsAreTwoFlopForEachMultiplyAdd) {
  const OperatorWork mm = work("mm", {half({8, 16}), half({16, 4})}, {half({8, 4})});
  EXPECT_EQ(mm.matmul_flop, 2.0 * 8 * 16 * 4);
  EXPECT_EQ(mm.needed_flop, mm.matmul_flop);
  EXPECT_EQ(mm.dtype, "bf16");
  EXPECT_EQ(mm.bytes_read, 2.0 * (8 * 16 + 16 * 4));
  EXPECT_EQ(mm.bytes_written, 2.0 * 8 * 4);
  EXPECT_EQ(work("addmm", {half({4}), half({8, 16}), half({16, 4})}, {half({8, 4})}).matmul_flop, 1024);
  EXPECT_EQ(work("bmm", {half({3, 8, 16}), half({3, 16, 4})}, {half({3, 8, 4})}).matmul_flop, 3072);
  EXPECT_EQ(work("linear", {half({2, 8, 16}), half({4, 16})}, {half({2, 8, 4})}).matmul_flop, 2048);
  // 5 output channels of 3x3 over 2 input channels.
  const TensorNote image = half({1, 2, 6, 6});
  const TensorNote weight = half({5, 2, 3, 3});
  const TensorNote made = half({1, 5, 4, 4});
  EXPECT_EQ(work("convolution", {image, weight}, {made}).matmul_flop, 2.0 * 80 * 18);
  EXPECT_EQ(work("convolution_backward", {made, image, weight}, {image, weight}).matmul_flop, 4.0 * 80 * 18);
}

TEST(OperatorWork, ProductsOfFp32AreTf32WhereThatIsAllowed) {
  OperatorNote note{.op = "aten::mm", .in = {whole({8, 8}), whole({8, 8})}, .out = {whole({8, 8})}};
  EXPECT_EQ(work_of(note)->dtype, "fp32");
  note.has_tf32 = true;
  EXPECT_EQ(work_of(note)->dtype, "tf32");
}

TEST(OperatorWork, AttentionIsCountedInFullAndNeededByHalf) {
  const TensorNote q = half({2, 4, 128, 64});
  const double full = 4.0 * 2 * 4 * 128 * 128 * 64;
  const OperatorWork forward = work("_scaled_dot_product_flash_attention", {q, q, q}, {q}, true);
  EXPECT_EQ(forward.matmul_flop, full);
  EXPECT_DOUBLE_EQ(forward.needed_flop, full * 129 / 256);
  EXPECT_EQ(forward.elementwise_flop, 5.0 * 2 * 4 * 128 * 128) << "as program/ops/attention.cpp";
  const OperatorWork backward =
      work("_scaled_dot_product_flash_attention_backward", {q, q, q, q, q, whole({2, 4, 128})}, {q, q, q});
  EXPECT_EQ(backward.matmul_flop, 2 * full);
  EXPECT_EQ(backward.dtype, "bf16");
}

TEST(OperatorWork, OtherOperatorsReadAndWriteOnce) {
  EXPECT_EQ(work("add", {half({8}), half({8})}, {half({8})}).bytes_read, 32);
  const OperatorWork in_place = work("add_", {half({8}), half({8})}, {half({8})});
  EXPECT_EQ(in_place.bytes_read, 32);
  EXPECT_EQ(in_place.bytes_written, 16);
  EXPECT_EQ(work("copy_", {half({8}), whole({8})}, {half({8})}).bytes_read, 32);
  const OperatorWork zero = work("zero_", {half({8})}, {half({8})});
  EXPECT_EQ(zero.bytes_read, 0);
  EXPECT_EQ(zero.bytes_written, 16);
  const OperatorWork view = work("transpose", {half({8, 2})}, {half({2, 8})});
  EXPECT_EQ(view.bytes_read + view.bytes_written + view.elementwise_flop, 0);
  // Rows that are looked up, not the table.
  const OperatorWork rows =
      work("embedding", {whole({1000, 4}), {.dtype = "int64", .shape = {3}}}, {whole({3, 4})});
  EXPECT_EQ(rows.bytes_read, 3 * 8 + 3 * 4 * 4);
  const TensorNote targets{.dtype = "int64", .shape = {4}};
  const OperatorWork loss =
      work("nll_loss_backward", {whole({}), whole({4, 100}), targets}, {whole({4, 100})});
  EXPECT_EQ(loss.bytes_read, 4 + 32);
  EXPECT_EQ(loss.bytes_written, 1600);
  EXPECT_EQ(work("index_add_", {half({1000, 4}), targets, half({4, 4})}, {}).bytes_written, 64);
  // A tensor that is expanded is as large as its memory.
  TensorNote wide = half({8, 1000});
  wide.bytes = 16;
  EXPECT_EQ(work("mul", {wide, half({8, 1000})}, {half({8, 1000})}).bytes_read, 16 + 16000);
  // AdamW reads weights, gradients and two moments, and writes all but the gradients.
  const TensorNote list{.dtype = "float32", .shape = {100}, .is_list = true};
  const OperatorWork adam = work("_fused_adamw_", {list, list, list, list}, {});
  EXPECT_EQ(adam.bytes_read, 1600);
  EXPECT_EQ(adam.bytes_written, 1200);
}

TEST(OperatorWork, WhatIsNotPyTorchsOwnHasNoPrice) {
  EXPECT_FALSE(work_of({.op = "mine::forward", .in = {half({8})}, .out = {half({8})}}));
}

TEST(OperatorWork, GroupedProductsAreThoseOfTheirRows) {
  const TensorNote offsets{.dtype = "int32", .shape = {8}};
  // Forward and the input's gradient: each row meets the matrix of its expert.
  EXPECT_EQ(work("_grouped_mm", {half({100, 16}), half({8, 16, 4}), offsets}, {half({100, 4})}).matmul_flop,
            2.0 * 100 * 16 * 4);
  // The gradient of the experts: the rows of each are summed up.
  EXPECT_EQ(work("_grouped_mm", {half({16, 100}), half({100, 4}), offsets}, {half({8, 16, 4})}).matmul_flop,
            2.0 * 100 * 16 * 4);
  EXPECT_EQ(work("_grouped_mm", {half({8, 16, 4}), half({4, 100}), offsets}, {half({16, 100})}).matmul_flop,
            2.0 * 100 * 16 * 4);
  const TensorNote eight{.dtype = "float8_e4m3fn", .shape = {32, 16}};
  const TensorNote rows{.dtype = "float8_e4m3fn", .shape = {16, 8}};
  for (const char* op : {"_scaled_mm", "_scaled_mm_v2", "_scaled_grouped_mm"}) {
    const OperatorWork scaled = work(op, {eight, rows, whole({}), whole({})}, {half({32, 8})});
    EXPECT_EQ(scaled.matmul_flop, 2.0 * 32 * 16 * 8) << op;
    EXPECT_EQ(scaled.dtype, "fp8") << op;
    EXPECT_EQ(scaled.bytes_read, 32 * 16 + 16 * 8 + 8) << op;
  }
}

TEST(OperatorWork, AttentionOfOtherLayoutsAndMasks) {
  const TensorNote q = half({2, 128, 4, 64});  // [B, T, H, D]
  const double full = 4.0 * 2 * 4 * 128 * 128 * 64;
  EXPECT_EQ(work("_flash_attention_forward", {q, q, q}, {q}).matmul_flop, full);
  EXPECT_EQ(work_of({.op = "flash_attn::_flash_attn_forward", .is_causal = true, .in = {q, q, q}, .out = {q}})
                ->needed_flop,
            full * 129 / 256);
  EXPECT_EQ(work("_flash_attention_forward", {half({256, 4, 64}), half({256, 4, 64}), half({256, 4, 64})}, {})
                .matmul_flop,
            0)
      << "sequences of unknown lengths";
  const TensorNote heads = half({2, 4, 128, 64});
  const auto flex =
      work_of({.op = "triton::flex_attention", .in = {heads, heads, heads}, .out = {heads}, .needed = 0.25});
  EXPECT_EQ(flex->matmul_flop, full);
  EXPECT_EQ(flex->needed_flop, full / 4);
  EXPECT_EQ(
      work_of({.op = "triton::flex_attention_backward", .in = {heads, heads, heads, heads}, .out = {heads}})
          ->matmul_flop,
      2 * full);
}

TEST(OperatorWork, KernelsOfTritonAndWhatIsSpreadOverRanksMoveTheirBytes) {
  const TensorNote list{.dtype = "float32", .shape = {100}, .is_list = true};
  const auto of = [](const char* op, std::vector<TensorNote> in, std::vector<TensorNote> out) {
    return work_of({.op = op, .in = std::move(in), .out = std::move(out)}).value();
  };
  const OperatorWork fused = of("triton::triton_poi_fused_add_0", {whole({10}), whole({10})}, {half({10})});
  EXPECT_EQ(fused.bytes_read, 80);
  EXPECT_EQ(fused.bytes_written, 20);
  EXPECT_EQ(of("triton::mm", {half({8, 16}), half({16, 4})}, {half({8, 4})}).matmul_flop, 1024);
  const OperatorWork gather = of("c10d::_allgather_base_", {half({64}), half({8})}, {half({64})});
  EXPECT_EQ(gather.bytes_read, 16);
  EXPECT_EQ(gather.bytes_written, 128);
  EXPECT_EQ(gather.matmul_flop + gather.elementwise_flop, 0);
  const OperatorWork copy_in =
      of("fsdp::all_gather_copy_in", {list, whole({800})}, {whole({100}), whole({800})});
  EXPECT_EQ(copy_in.bytes_read, 400);
  EXPECT_EQ(copy_in.bytes_written, 400);
  EXPECT_EQ(of("fsdp::chunk_cat", {list}, {whole({120})}).bytes_written, 480);
  EXPECT_EQ(of("aten::split_with_sizes_copy", {whole({100})}, {list}).bytes_written, 400);
  EXPECT_EQ(of("_c10d_functional::wait_tensor", {half({8})}, {half({8})}).bytes_read, 0);
}

TEST(OperatorWork, BytesThatNoCacheHoldsAreAmongThoseRead) {
  OperatorNote note{.op = "aten::embedding",
                    .in = {whole({1000, 4}), {.dtype = "int64", .shape = {3}}},
                    .out = {whole({3, 4})}};
  note.cold_bytes = 16000;
  EXPECT_EQ(work_of(note)->far_bytes, work_of(note)->bytes_read) << "of the table only what is looked up";
  note.cold_bytes = 24;
  EXPECT_EQ(work_of(note)->far_bytes, 24);
}

TEST(OperatorWork, NotesAreReadAndLiesAreNot) {
  const auto note = read_operator(
      R"({"op":"aten::mm","phase":"backward","module":"h.0","again":1,"causal":0,"tf32":1,"n":2,)"
      R"("cold":40,"calls":[3,9],"needed":0.5,"in":[["bfloat16",[8,16],4],["list","float32",[7]]],"out":[]})");
  ASSERT_TRUE(note);
  EXPECT_EQ(note->calls, (std::vector<std::uint32_t>{3, 9}));
  EXPECT_EQ(note->cold_bytes, 40);
  EXPECT_EQ(note->needed, 0.5);
  EXPECT_EQ(note->phase + note->module, "backwardh.0");
  EXPECT_TRUE(note->is_recomputed && note->has_tf32 && !note->is_causal);
  EXPECT_EQ(note->count, 2);
  EXPECT_EQ(note->in[0].bytes, 4);
  EXPECT_TRUE(note->in[1].is_list);
  for (const char* lie : {"", "[]", "{}", R"({"op":1,"phase":"","in":[],"out":[]})",
                          R"({"op":"aten::mm","phase":"","n":0,"in":[],"out":[]})",
                          R"({"op":"aten::mm","phase":"","in":[["int8",[-1]]],"out":[]})",
                          R"({"op":"aten::mm","phase":"","in":[["int8",[1,2],-4]],"out":[]})",
                          R"({"op":"aten::mm","phase":"","in":[["int8",[9007199254740992,99]]],"out":[]})",
                          R"({"op":"aten::mm","phase":"","in":[["list"]],"out":[]})",
                          R"({"op":"aten::mm","phase":"","needed":2,"in":[],"out":[]})",
                          R"({"op":"aten::mm","phase":"","cold":-1,"in":[],"out":[]})",
                          R"({"op":"aten::mm","phase":"","calls":[-1.5],"in":[],"out":[]})",
                          R"({"op":"aten::mm","phase":"","calls":"x","in":[],"out":[]})",
                          R"({"op":"aten::mm","phase":"","in":[7],"out":[]})"}) {
    EXPECT_FALSE(read_operator(lie)) << lie;
  }
}

}  // namespace
}  // namespace rooflm::foreign
