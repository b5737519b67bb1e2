// GEMMs with GELU's gradient in their epilogue, which are kernels of another kind.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "devices/device.h"
#include "perfmodel/op_times.h"
#include "program/ops.h"

namespace rooflm {
namespace {

double gelu_gradient_us(std::int64_t m, std::int64_t n, std::int64_t k, core::DType dtype) {
  program::Program program;
  program.add_tensor({.name = "dy", .shape = {m, k}, .dtype = dtype});
  program.add_tensor({.name = "w", .shape = {k, n}, .dtype = dtype});
  program.add_tensor({.name = "x", .shape = {m, n}, .dtype = dtype});
  program::Op op;
  op.def = &program::ops::kMatmulGeluBackward;
  op.inputs = {0, 1, 2};
  op.attrs = {{"batch", 1}, {"m", m}, {"n", n}, {"k", k}};
  program.append(std::move(op), "dx");
  program.tensor(program.ops[0].outputs[0]).dtype = dtype;
  const perfmodel::OpTimes times(devices::find_device("h100-sxm"), {});
  return times.time_of(program, program.ops[0]).seconds * 1e6;
}

/// One H100 of 700 W (docs/perfmodel.md): the first two in profiles of two layers, the others alone.
TEST(GeluTimes, GradientsTakeWhatTheyWereMeasuredToTake) {
  struct Case {
    std::int64_t m, n, k;
    double us;
  };
  for (const Case& c : {Case{1345, 2560, 640, 31.4}, Case{5954, 1536, 384, 46.8}, Case{8192, 3072, 768, 90.7},
                        Case{4096, 6400, 1600, 145.2}, Case{32768, 3072, 768, 300.4}}) {
    const double planned = gelu_gradient_us(c.m, c.n, c.k, core::DType::bf16);
    EXPECT_NEAR(planned / c.us, 1, 0.11) << c.m;
    EXPECT_EQ(gelu_gradient_us(c.m, c.n, c.k, core::DType::f16), planned);
  }
  EXPECT_LT(gelu_gradient_us(128, 2560, 640, core::DType::bf16), 10) << "few tiles are no wave";
}

}  // namespace
}  // namespace rooflm
