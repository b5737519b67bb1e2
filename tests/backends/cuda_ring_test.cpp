// Ring attention on a GPU: the blocks of all ranks are the attention of the whole sequence.
#include <gtest/gtest.h>

#include <cstdint>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "program/ops.h"
#include "program/pieces.h"
#include "tests/backends/op_case_writer.h"
#include "tests/backends/op_ring.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {
namespace {

using core::DType;
using program::Pieces;
using program::TensorId;

class CudaRing : public testing::Test {
 protected:
  void SetUp() override {
    const auto status = backends::cuda::query_cuda();
    if (status.devices.empty()) GTEST_SKIP() << status.reason;
  }
};

/// Sizes of which no tile is full, and some of several tiles; odd heads are on CUDA cores in 16 bits, too.
TEST_F(CudaRing, BlocksAreTheWholeAttention) {
  struct Extents {
    std::int64_t parts, seq, dim;
  };
  constexpr Extents kExtents[] = {{2, 4, 6}, {3, 42, 5}, {2, 280, 64}, {4, 136, 16}, {2, 72, 136}};
  const auto cpu = backends::make_cpu_backend(backends::CpuKernels::reference, 4);
  const auto gpu = backends::cuda::make_cuda_backend(0, {});
  for (const auto& [parts, seq, dim] : kExtents) {
    SCOPED_TRACE(seq);
    expect_whole(ring_of(parts, seq, dim, DType::f32), seq, *cpu, *gpu, 4e-6);
    // Each of up to four blocks of y is rounded, 2^-8 of an element, and again where it is joined.
    expect_whole(ring_of(parts, seq, dim, DType::bf16), seq, *cpu, *gpu, 0x1p-5);
    expect_whole(ring_of(parts, seq, dim, DType::f16), seq, *cpu, *gpu, 0x1p-8);
  }
}

/// Positions of pieces are those of the whole sequence: rotary ones, learned ones and their gradient.
TEST_F(CudaRing, PositionsAreThoseOfTheSequence) {
  constexpr std::int64_t kSeq = 24, kParts = 3, kHeads = 4, kKvHeads = 2, kDim = 6;
  constexpr std::int64_t kWidth = (kHeads + 2 * kKvHeads) * kDim;
  const auto cpu = backends::make_cpu_backend(backends::CpuKernels::reference, 1);
  const auto gpu = backends::cuda::make_cuda_backend(0, {});
  for (std::int64_t i = 0; i < kParts; ++i) {
    program::Attributes attrs = heads(kDim);
    attrs.set("theta", 10000.0);
    attrs.set("inverse", false);
    Pieces{.parts = kParts, .index = i}.write_to(attrs);
    CaseWriter w("positions");
    const TensorId x = w.activation({2, kSeq / kParts, kWidth});
    const TensorId table = w.weight({kSeq + 1, kWidth});
    const TensorId turned = w.op(program::ops::kRope, {x}, attrs)[0];
    const TensorId y = w.op(program::ops::kAddPositions, {turned, table}, attrs)[0];
    attrs.set("positions", kSeq + 1);
    const TensorId gradient = w.op(program::ops::kAddPositionsBackward, {y}, attrs)[0];
    const Case own = w.done();
    OpRunner expected(own, *cpu);
    OpRunner actual(own, *gpu);
    actual.copy_from(expected);
    expected.run_all();
    actual.run_all();
    for (const TensorId id : {y, gradient}) {
      const auto a = actual.read(id);
      const auto b = expected.read(id);
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], 1e-5) << i << " " << k;
    }
  }
}

}  // namespace
}  // namespace rooflm::tests
