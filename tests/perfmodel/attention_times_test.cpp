// Flash attention by dtype and shape: rooflm's own kernels take what was measured of them alone.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "devices/cuda_attention.h"
#include "perfmodel/kernel_workspaces.h"
#include "perfmodel/op_times.h"
#include "program/ops.h"

namespace rooflm {
namespace {

using core::DType;
using devices::AttentionSizes;
using program::Fp32Products;

/// Forward and gradient.
struct Attention {
  program::Program program{};

  Attention(const AttentionSizes& s, DType dtype, Fp32Products products) {
    const std::int64_t width = s.heads * s.head_dim;
    const std::int64_t packed = (s.heads + 2 * s.kv_heads) * s.head_dim;
    program.add_tensor({.name = "qkv", .shape = {s.batch, s.seq, packed}, .dtype = dtype});
    program.add_tensor({.name = "dy", .shape = {s.batch, s.seq, width}, .dtype = dtype});
    program::Op forward;
    forward.def = &program::ops::kFlashAttention;
    forward.inputs = {0};
    forward.attrs = {{"heads", s.heads}, {"kv_heads", s.kv_heads}, {"head_dim", s.head_dim}};
    program::set_fp32_products(forward, products);
    program::Op backward;
    backward.def = &program::ops::kFlashAttentionBackward;
    backward.attrs = forward.attrs;
    program.append(std::move(forward), "y");
    backward.inputs = {1, 0, program.ops[0].outputs[0], program.ops[0].outputs[1]};
    program.append(std::move(backward), "dqkv");
    for (const program::Op& op : program.ops) program.tensor(op.outputs[0]).dtype = dtype;
  }
};

struct Seconds {
  double forward = 0, backward = 0;
};

Seconds seconds_of(const AttentionSizes& sizes, DType dtype, Fp32Products products = Fp32Products::plain,
                   const char* kernels = perfmodel::kOwnAttention.data(), double hz = 1.98e9) {
  const auto device = devices::find_device("h100-sxm");
  const perfmodel::OpTimes times(device, {.attention = kernels});
  const Attention attention(sizes, dtype, products);
  const auto at = [&](std::size_t i) {
    const auto time = times.time_of(attention.program, attention.program.ops[i]);
    return perfmodel::OpTimes::at_clock(time, hz / times.power().table_hz);
  };
  return {at(0), at(1)};
}

/// docs/performance/attention.md, "fp32, tf32 and fp16": ms of one layer alone.
TEST(AttentionTimes, OwnKernelsTakeWhatTheyWereMeasuredToTake) {
  struct Case {
    AttentionSizes sizes;
    DType dtype;
    Fp32Products products;
    double forward_ms, backward_ms;
  };
  const Case cases[] = {
      {{8, 1024, 12, 12, 64}, DType::f32, Fp32Products::plain, 0.434, 1.455},
      {{8, 1024, 12, 12, 64}, DType::f32, Fp32Products::tf32, 0.120, 0.364},
      {{4, 1024, 8, 8, 128}, DType::f32, Fp32Products::plain, 0.285, 0.950},
      {{4, 1024, 8, 8, 128}, DType::f32, Fp32Products::tf32, 0.101, 0.307},
      {{4, 1024, 16, 16, 80}, DType::f32, Fp32Products::tf32, 0.139, 0.410},
      {{8, 1024, 12, 12, 64}, DType::f32, Fp32Products::bf16x6, 0.314, 1.082},
      {{4, 1024, 8, 8, 128}, DType::f32, Fp32Products::bf16x6, 0.233, 0.782},
      {{4, 1024, 16, 16, 80}, DType::f32, Fp32Products::bf16x6, 0.357, 1.105},
      {{2, 1024, 8, 8, 192}, DType::f32, Fp32Products::plain, 0.272, 0.880},
      {{2, 1024, 8, 8, 256}, DType::f32, Fp32Products::plain, 0.354, 1.183},
      {{2, 300, 16, 16, 256}, DType::f16, Fp32Products::plain, 0.027, 0.070},
  };
  for (const Case& c : cases) {
    const Seconds planned = seconds_of(c.sizes, c.dtype, c.products);
    const std::string what = std::string(core::name_of(c.dtype)) + " " + std::to_string(c.sizes.head_dim);
    EXPECT_NEAR(planned.forward * 1e3 / c.forward_ms, 1, 0.1) << what;  // with the time of a launch
    EXPECT_NEAR(planned.backward * 1e3 / c.backward_ms, 1, 0.1) << what;
  }
}

/// docs/perfmodel.md, "Context parallelism": a block of a ring costs what flash attention of its size does.
TEST(AttentionTimes, BlocksOfARingInFp32CostWhatAttentionOfTheirSizeDoes) {
  const perfmodel::OpTimes times(devices::find_device("h100-sxm"),
                                 {.attention = std::string(perfmodel::kOwnAttention)});
  const AttentionSizes sizes{8, 1024, 12, 12, 64};
  const std::int64_t width = sizes.heads * sizes.head_dim;
  program::Program program;
  program.add_tensor({.name = "qkv", .shape = {sizes.batch, sizes.seq, 3 * width}, .dtype = DType::f32});
  program.add_tensor({.name = "kv", .shape = {sizes.batch, sizes.seq, 2 * width}, .dtype = DType::f32});
  program::Op block;
  block.def = &program::ops::kAttentionBlock;
  block.inputs = {0, 1};
  block.attrs = {{"heads", sizes.heads},
                 {"kv_heads", sizes.kv_heads},
                 {"head_dim", sizes.head_dim},
                 {"parts", 2},
                 {"index", 0},
                 {"from", 0}};
  program.append(std::move(block), "y");
  const double alone_s = seconds_of(sizes, DType::f32).forward;
  const double hz = 1.98e9;
  const auto time = times.time_of(program, program.ops[0]);
  EXPECT_NEAR(perfmodel::OpTimes::at_clock(time, hz / times.power().table_hz) / alone_s, 1, 0.1);
}

/// Kernels of warp groups, at the clock of the tables' attention: 0.044 ms, and 0.108 ms before the gradient
/// had fewer instructions.
TEST(AttentionTimes, LengthsThatCudnnDoesNotTakeRunOnOwnKernelsInBf16) {
  const Seconds planned =
      seconds_of({8, 777, 12, 12, 64}, DType::bf16, Fp32Products::plain, "rooflm", 1.77e9);
  EXPECT_NEAR(planned.forward * 1e3 / 0.044, 1, 0.15);
  EXPECT_LT(planned.backward * 1e3, 0.108);
  EXPECT_GT(planned.backward * 1e3, 0.7 * 0.108);
}

/// docs/performance/attention.md, "Backward in one pass": ms of one layer alone.
TEST(AttentionTimes, GradientsInOnePassTakeWhatTheyWereMeasuredToTake) {
  const auto device = devices::find_device("h100-sxm");
  const auto gradient_ms = [&](const Attention& attention, bool is_deterministic) {
    const perfmodel::OpTimes times(
        device, {.is_deterministic = is_deterministic, .attention = std::string(perfmodel::kOwnAttention)});
    const auto time = times.time_of(attention.program, attention.program.ops[1]);
    return perfmodel::OpTimes::at_clock(time, 1.77e9 / times.power().table_hz) * 1e3;
  };
  struct Case {
    AttentionSizes sizes;
    double ms;
  };
  // The last one fills the device less.
  for (const Case& c : {Case{{32, 1024, 12, 12, 64}, 0.427}, Case{{4, 4096, 16, 16, 64}, 0.730},
                        Case{{1, 16384, 16, 16, 64}, 2.483}, Case{{8, 1024, 16, 16, 128}, 0.299},
                        Case{{8, 2048, 16, 16, 128}, 0.804}, Case{{4, 4096, 16, 16, 128}, 1.332},
                        Case{{1, 16384, 16, 16, 128}, 4.562}, Case{{2, 4096, 32, 8, 128}, 1.586},
                        Case{{4, 1024, 25, 25, 64}, 0.139}}) {
    const Attention attention(c.sizes, DType::bf16, Fp32Products::plain);
    EXPECT_NEAR(gradient_ms(attention, false) / c.ms, 1, 0.15)
        << c.sizes.batch << " " << c.sizes.seq << " " << c.sizes.head_dim;
    EXPECT_LT(gradient_ms(attention, false), gradient_ms(attention, true));
  }
  const AttentionSizes sizes{1, 16384, 16, 16, 128};
  EXPECT_DOUBLE_EQ(
      perfmodel::kernel_workspace_bytes(Attention(sizes, DType::bf16, Fp32Products::plain).program, device,
                                        false),
      static_cast<double>(devices::kGemmWorkspaceBytes + devices::one_pass_gradient_bytes(sizes)));
}

TEST(AttentionTimes, PaddingOfHeadsIsWork) {
  const Seconds narrow = seconds_of({8, 1024, 12, 12, 32}, DType::f32, Fp32Products::tf32);
  const Seconds whole = seconds_of({8, 1024, 12, 12, 64}, DType::f32, Fp32Products::tf32);
  EXPECT_NEAR(narrow.forward / whole.forward, 1, 1e-9);
  EXPECT_NEAR(narrow.backward / whole.backward, 1, 1e-9);
  // cuDNN's: 96 as 128.
  const Seconds cudnn = seconds_of({8, 4096, 12, 12, 96}, DType::f16);
  const Seconds wide = seconds_of({8, 4096, 12, 12, 128}, DType::f16);
  EXPECT_NEAR(cudnn.forward / wide.forward, 1, 1e-9);
}

TEST(AttentionTimes, TheLongestBlockBindsFewHeads) {
  const Seconds one = seconds_of({1, 2176, 1, 1, 192}, DType::f32, Fp32Products::tf32);
  const Seconds four = seconds_of({1, 2176, 4, 4, 192}, DType::f32, Fp32Products::tf32);
  EXPECT_NEAR(one.forward / four.forward, 1, 1e-9);  // 34 and 136 blocks, of 132 multiprocessors
  EXPECT_GT(seconds_of({8, 2176, 8, 8, 192}, DType::f32, Fp32Products::tf32).forward, 7 * one.forward);
}

/// As measured: docs/performance/attention.md, "Sequences that end within a tile".
TEST(AttentionTimes, CudnnComputesTheLastTileToItsEnd) {
  const Seconds whole = seconds_of({2, 2048, 16, 16, 256}, DType::f16);
  const Seconds within = seconds_of({2, 2000, 16, 16, 256}, DType::f16);
  EXPECT_NEAR(within.forward / whole.forward, 1, 0.03);
  EXPECT_NEAR(within.backward / whole.backward, 1, 0.03);
}

TEST(AttentionTimes, OtherFrameworksKeepTheTables) {
  const Seconds tables = seconds_of({8, 2176, 12, 12, 64}, DType::f16, Fp32Products::plain, "");
  const Seconds odd = seconds_of({8, 2175, 12, 12, 64}, DType::f16, Fp32Products::plain, "");
  EXPECT_NEAR(odd.forward / tables.forward, 1, 0.01);
  EXPECT_NEAR(seconds_of({8, 2176, 12, 12, 64}, DType::f16).forward, tables.forward, 1e-12);
}

}  // namespace
}  // namespace rooflm
