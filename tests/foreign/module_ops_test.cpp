// Kernels and the modules that they worked for, from marks.
#include "foreign/module_ops.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace rooflm::foreign {
namespace {

using inject::RangeKind;
using inject::RowKind;

constexpr std::uint32_t kMain = 1;
constexpr std::uint32_t kAutograd = 2;

inject::Row marked(RangeKind what, std::uint32_t name, std::uint64_t start, std::uint64_t end,
                   std::uint32_t thread = kMain) {
  return {.kind = what == RangeKind::gradient ? RowKind::mark : RowKind::range,
          .range = what,
          .name = name,
          .start_ns = start,
          .end_ns = end,
          .place = thread};
}

/// A step from 100 to 1000: block (1) with its part (2), the backward pass from 500, the optimizer from 800.
class ModuleOpsOfAStep : public testing::Test {
 protected:
  std::string scope_at(std::uint32_t thread, std::uint64_t time_ns) {
    ModuleOps ops(rows_, texts_, facts_);
    const auto op = ops.op_of(thread, time_ns);
    if (!op) return "none";
    const record::Op row = ops.take().at(static_cast<std::size_t>(*op));
    return row.phase + " " + row.scope + (row.recomputed ? " again" : "");
  }

  ModuleOps::Texts texts_ = {
      {1, "model.layers.3"}, {2, "model.layers.3.attn.q"}, {5, "backward"}, {6, "optimizer"}};
  std::map<std::string, std::string> facts_ = {{"module model.layers.3.attn.q", "Linear"}};
  std::vector<inject::Row> rows_ = {marked(RangeKind::step, 9, 100, 1000),
                                    marked(RangeKind::module_, 1, 200, 400),
                                    marked(RangeKind::module_, 2, 250, 300),
                                    marked(RangeKind::phase, 5, 500, 700),
                                    marked(RangeKind::gradient, 2, 550, 550, kAutograd),
                                    marked(RangeKind::gradient, 1, 600, 600, kAutograd),
                                    marked(RangeKind::phase, 6, 800, 900)};
};

TEST_F(ModuleOpsOfAStep, TheInnermostOpenModuleHasTheKernelsOfItsThread) {
  EXPECT_EQ(scope_at(kMain, 50), "none");
  EXPECT_EQ(scope_at(kMain, 150), "forward other");
  EXPECT_EQ(scope_at(kMain, 210), "forward h.3/itself");
  EXPECT_EQ(scope_at(kMain, 260), "forward h.3/attn/q");
  EXPECT_EQ(scope_at(kMain, 310), "forward h.3/itself");
  EXPECT_EQ(scope_at(kMain, 410), "forward other");
  EXPECT_EQ(scope_at(kMain, 1001), "none");
}

TEST_F(ModuleOpsOfAStep, GradientsBelongToWhatTheirThreadWasSaidToWorkOn) {
  EXPECT_EQ(scope_at(kAutograd, 510), "backward other");
  EXPECT_EQ(scope_at(kAutograd, 560), "backward h.3/attn/q");
  EXPECT_EQ(scope_at(kAutograd, 650), "backward h.3/itself");
  EXPECT_EQ(scope_at(kMain, 850), "optimizer optimizer");
}

TEST_F(ModuleOpsOfAStep, WhatIsGatheredForTheFirstGradientIsOfItsModule) {
  texts_[7] = "ncclDevKernel_AllGather_RING_LL";
  texts_[8] = "vectorized_elementwise_kernel";
  ModuleOps ops(rows_, texts_, facts_);
  const auto scope_of = [&](std::uint64_t time_ns, std::uint32_t kernel) {
    const auto op = ops.op_of(kAutograd, time_ns, kernel);
    return ops.ops().at(static_cast<std::size_t>(op.value())).scope;
  };
  EXPECT_EQ(scope_of(510, 7), "h.3/attn/q");
  EXPECT_EQ(scope_of(510, 8), "other") << "of the loss";
  EXPECT_EQ(scope_of(650, 7), "h.3/itself");
}

TEST_F(ModuleOpsOfAStep, MarksOfAnEarlierBackwardPassDoNotCount) {
  rows_.push_back(marked(RangeKind::phase, 5, 920, 960));
  EXPECT_EQ(scope_at(kAutograd, 930), "backward other");
}

TEST_F(ModuleOpsOfAStep, AModuleThatIsCalledInTheBackwardPassIsRedone) {
  rows_.push_back(marked(RangeKind::module_, 2, 610, 640, kAutograd));
  EXPECT_EQ(scope_at(kAutograd, 620), "backward h.3/attn/q again");
  EXPECT_EQ(scope_at(kAutograd, 645), "backward h.3/itself");
}

TEST(ModuleScopes, PathsBecomeLayersAndParts) {
  EXPECT_EQ(scope_of_module("transformer.h.11.attn.c_attn"), "h.11/attn/c_attn");
  EXPECT_EQ(scope_of_module("module.layers.0"), "h.0/itself");
  EXPECT_EQ(scope_of_module("_orig_mod.lm_head"), "lm_head");
  EXPECT_EQ(scope_of_module("model.embed"), "model/embed");
  EXPECT_EQ(scope_of_module("layers.2.experts.5.w1"), "h.2/experts/5/w1");
  EXPECT_EQ(scope_of_module(""), "other");
}

}  // namespace
}  // namespace rooflm::foreign
