// Kernels that are compiled once more for another processor: which of them run, and that they are on their
// own.
#include "backends/cpu/levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "program/builder.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {

// Made by tests/CMakeLists.txt, of fast/elementwise.cpp and reference/add.cpp.
MakerRows level_fast() __asm__("rooflm_test_fast");
MakerRows level_reference() __asm__("rooflm_test_reference");

namespace {

const Level& chosen(unsigned isa) {
  static constexpr std::array kLevels = {
      Level{"avx512_bf16", dnnl_cpu_isa_avx512_core_bf16, fast::kernels, reference::kernels},
      Level{"avx512", dnnl_cpu_isa_avx512_core, fast::kernels, reference::kernels},
      Level{"x86-64-v3", 0, fast::kernels, reference::kernels}};
  return best_of(kLevels, isa);
}

TEST(Levels, TheBestThatAProcessorHas) {
  EXPECT_EQ(chosen(dnnl_cpu_isa_avx512_core_amx).name, "avx512_bf16");
  EXPECT_EQ(chosen(dnnl_cpu_isa_avx512_core_bf16).name, "avx512_bf16");
  EXPECT_EQ(chosen(dnnl_cpu_isa_avx512_core_vnni).name, "avx512");
  EXPECT_EQ(chosen(dnnl_cpu_isa_avx512_core).name, "avx512");
  EXPECT_EQ(chosen(dnnl_cpu_isa_avx2).name, "x86-64-v3");
  EXPECT_EQ(chosen(dnnl_cpu_isa_avx2_vnni).name, "x86-64-v3");
}

TEST(Levels, ThisBuildHasOneForThisProcessor) {
  EXPECT_EQ(levels().back().needs, 0U);
  EXPECT_EQ(level().needs & ~static_cast<unsigned>(dnnl::get_effective_cpu_isa()), 0U);
  EXPECT_FALSE(level().fast().empty());
  EXPECT_FALSE(level().reference().empty());
}

/// The sum of two vectors of odd length, by the kernel of `rows`.
std::vector<float> sum_by(const MakerRows& rows) {
  program::Program program;
  const auto operand = [&](const char* name) {
    return program.add_tensor({.name = name, .shape = {17}, .role = program::Role::activation});
  };
  const std::vector<program::TensorId> inputs = {operand("a"), operand("b")};
  program::Builder(program).op(program::ops::kAdd, inputs, {}, "sum");
  const auto row = std::ranges::find(rows, &program::ops::kAdd, &MakerRow::op);
  if (row == rows.end()) return {};
  const Kernel kernel = row->make({program, program.ops.at(0), std::make_shared<Resources>(1)});

  std::vector<float> a(17);
  std::iota(a.begin(), a.end(), 0.5F);
  std::vector<float> b(17, 100);
  std::vector<float> sum(17);
  void* const in[] = {a.data(), b.data()};
  void* const out[] = {sum.data()};
  kernel({in, out});
  return sum;
}

TEST(Levels, AreCompiledOnTheirOwn) {
  std::vector<float> expected(17);
  std::iota(expected.begin(), expected.end(), 100.5F);
  const auto count = [](const MakerRows& rows, const program::OpDef& op) {
    return std::ranges::count(rows, &op, &MakerRow::op);
  };
  EXPECT_EQ(sum_by(level_fast()), expected);
  EXPECT_EQ(sum_by(level_reference()), expected);
  EXPECT_EQ(sum_by(fast::kernels()), expected);
  // The tables of the level hold what it was made of, and the binary's own tables are no part of them.
  EXPECT_EQ(level_fast().size(), 2U);
  EXPECT_EQ(count(level_fast(), program::ops::kMatmul), 0);
  EXPECT_GT(count(fast::kernels(), program::ops::kMatmul), 0);
  EXPECT_NE(level_fast().front().make, fast::kernels().front().make);
}

}  // namespace
}  // namespace rooflm::backends::cpu
