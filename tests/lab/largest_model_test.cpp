// The largest model that fits, and LayerNorm in 16 bits.
#include "lab/largest_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/f16.h"
#include "lab/micro/format_norms.h"

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
  EXPECT_FALSE(half.rms) << "there is nothing to be off";
  EXPECT_EQ(norm_error<core::F16>(4, 768, 16, false).not_finite, 0) << "sums in fp32";
  const auto brain = norm_error<core::Bf16>(4, 768, 16, true);
  EXPECT_EQ(brain.not_finite, 0);
  // Sums of 8 bits stagnate; with sums in fp32 the rounding of x and y is left, half of 2^-8 at most.
  EXPECT_GT(brain.rms.value(), 10 * norm_error<core::Bf16>(4, 768, 16, false).rms.value());
  EXPECT_LT(norm_error<core::Bf16>(4, 768, 1, false).rms.value(), std::ldexp(1.0, -8));
}

TEST(FormatNorms, WhatOverflowsEverywhereHasNoError) {
  std::map<std::int64_t, std::map<std::string, record::Cell>> rows;
  for (const record::Cell& cell : norm_cells()) rows[cell.row][cell.col] = cell;
  for (const auto& [number, row] : rows) {
    const bool is_lost = row.at("overflowed").value == row.at("outputs").value;
    EXPECT_EQ(row.contains("error_rms"), !is_lost) << number;
  }
  EXPECT_FALSE(rows.at(2).contains("error_rms")) << "fp16 at a deviation of 16";
}

/// Dtypes of the tensors of a role in a compiled step.
std::set<core::DType> dtypes_of(const char* dtype, const char* engine, program::Role role) {
  record::Config config;
  for (const auto& [key, value] :
       {std::pair{"model", "tiny"}, {"device", "null"}, {"dtype", dtype}, {"engine", engine}})
    config.set(key, std::string(value));
  std::set<core::DType> dtypes;
  const program::Program step = program_of(make_points(std::vector{config}).front());
  for (const program::Tensor& tensor : step.tensors)
    if (tensor.role == role) dtypes.insert(tensor.dtype);
  return dtypes;
}

TEST(Formats, AreUsedForWhatTheTableSays) {
  using core::DType;
  using program::Role;
  for (const auto& [name, dtype] : {std::pair{"bf16", DType::bf16}, {"fp16", DType::f16}}) {
    // "gradients of weights in the eager engine" are fp32, "in the fused engine ... that one matmul writes"
    // not.
    EXPECT_EQ(dtypes_of(name, "eager", Role::gradient), std::set{DType::f32}) << name;
    EXPECT_TRUE(dtypes_of(name, "fused", Role::gradient).contains(dtype)) << name;
    for (const char* engine : {"eager", "fused"}) {
      EXPECT_EQ(dtypes_of(name, engine, Role::optimizer_state).count(dtype), 0U) << engine;
      EXPECT_TRUE(dtypes_of(name, engine, Role::activation_gradient).contains(dtype)) << engine;
      EXPECT_TRUE(dtypes_of(name, engine, Role::activation).contains(dtype)) << engine;
    }
    EXPECT_EQ(dtypes_of(name, "eager", Role::weight), std::set{DType::f32}) << "masters, cast for each step";
  }
  EXPECT_EQ(passes::Fp8Options().gradients, passes::Fp8Gradients::e4m3) << "e5m2 has to be asked for";
}

}  // namespace
}  // namespace rooflm::lab
