// The largest model that fits, and LayerNorm in 16 bits.
#include "lab/largest_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/dtype.h"
#include "core/f16.h"
#include "lab/format_norms.h"

namespace rooflm::lab {
namespace {

Point gpt2_point(const std::string& dtype) {
  record::Config config;
  config.set("model", std::string("gpt2"));
  config.set("device", std::string("null"));
  config.set("dtype", dtype);
  config.set("batch", std::int64_t{1});
  config.set("seq", std::int64_t{64});
  return make_points(std::vector{config}).front();
}

TEST(LargestModel, FitsAndTheNextDoesNot) {
  const Point point = gpt2_point("fp32");
  for (const double limit : {3e8, 2e9}) {
    const auto largest = largest_model(point, limit);
    ASSERT_TRUE(largest) << limit;
    EXPECT_LE(largest->needed_bytes, limit);
    EXPECT_GT(largest->next_needed_bytes, limit);
    // Weights, gradients and two moments in fp32 are 16 bytes a parameter, and there is little else.
    EXPECT_GT(largest->needed_bytes, 16.0 * static_cast<double>(largest->params));
    EXPECT_EQ(largest->params, model::parameter_count(largest->config));
  }
  EXPECT_FALSE(largest_model(point, 1e6)) << "the embedding alone is larger";
  EXPECT_EQ(largest_cells({point, point}, 3e8).size(), largest_cells({point}, 3e8).size())
      << "once for each dtype";
}

TEST(FormatNorms, Fp16OverflowsWhereBf16DoesNot) {
  const auto half = norm_error<core::F16>(4, 768, 16, true);
  EXPECT_EQ(half.not_finite, half.outputs) << "768 squares of about 256 are beyond 65504";
  EXPECT_EQ(norm_error<core::F16>(4, 768, 16, false).not_finite, 0) << "sums in fp32";
  const auto brain = norm_error<core::Bf16>(4, 768, 16, true);
  EXPECT_EQ(brain.not_finite, 0);
  // Sums of 8 bits stagnate; with sums in fp32 the rounding of x and y is left, half of 2^-8 at most.
  EXPECT_GT(brain.rms, 10 * norm_error<core::Bf16>(4, 768, 16, false).rms);
  EXPECT_LT(norm_error<core::Bf16>(4, 768, 1, false).rms, std::ldexp(1.0, -8));
}

}  // namespace
}  // namespace rooflm::lab
