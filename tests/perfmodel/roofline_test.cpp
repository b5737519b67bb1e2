// Roofs of ops on a made-up machine, with answers by hand.
#include "perfmodel/roofline.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <utility>

#include "core/dtype.h"
#include "program/ops.h"

namespace rooflm {
namespace {

using perfmodel::Machine;

/// 1 TFLOP/s in fp32; 100 GB/s to a cache of 1 MB, 10 GB/s beyond.
Machine machine() {
  return {.flop_per_s = {{"fp32", 1e12}},
          .levels = {{.name = "L3", .byte_per_s = 100e9, .capacity_bytes = 1e6},
                     {.name = "DRAM", .byte_per_s = 10e9}}};
}

program::Program product(std::int64_t m, std::int64_t n, std::int64_t k) {
  program::Program program;
  program.add_tensor({.name = "a", .shape = {m, k}});
  program.add_tensor({.name = "b", .shape = {k, n}});
  program::Op op;
  op.def = &program::ops::kMatmul;
  op.inputs = {0, 1};
  op.scope = "lm_head";
  op.attrs = {{"batch", 1}, {"m", m}, {"n", n}, {"k", k}};
  program.append(std::move(op), "c");
  return program;
}

TEST(Roofline, LargeProductsAreBoundByArithmetic) {
  const auto program = product(1000, 1000, 1000);
  const auto roof = perfmodel::roof_of(machine(), program, program.ops[0]);
  EXPECT_DOUBLE_EQ(roof.matmul_s, 2e9 / 1e12);
  // 12 MB, of which 1 MB may be in the cache.
  EXPECT_DOUBLE_EQ(roof.memory_s, 11e6 / 10e9);
  EXPECT_DOUBLE_EQ(roof.roof_s, 2e-3);
  EXPECT_EQ(roof.bound, "matmul fp32");
}

TEST(Roofline, ThinProductsAreBoundByMemory) {
  const auto program = product(1, 10000, 1000);
  const auto roof = perfmodel::roof_of(machine(), program, program.ops[0]);
  const double bytes = 4.0 * (1000 + 10000.0 * 1000 + 10000);
  EXPECT_DOUBLE_EQ(roof.roof_s, (bytes - 1e6) / 10e9);
  EXPECT_EQ(roof.bound, "DRAM");
}

TEST(Roofline, WhatCachesOfUnknownRateMayHoldCostsNoTimeOfTheMemoryBeyond) {
  const Machine hidden{
      .flop_per_s = {{"fp32", 1e12}},
      .levels = {
          {.name = "cache", .byte_per_s = std::numeric_limits<double>::infinity(), .capacity_bytes = 1e6},
          {.name = "DRAM", .byte_per_s = 10e9}}};
  const auto small = product(1, 100, 100);
  EXPECT_DOUBLE_EQ(perfmodel::roof_of(hidden, small, small.ops[0]).memory_s, 0);
  const auto large = product(1, 10000, 1000);
  EXPECT_DOUBLE_EQ(perfmodel::roof_of(hidden, large, large.ops[0]).memory_s,
                   (4.0 * (1000 + 10000.0 * 1000 + 10000) - 1e6) / 10e9);
}

TEST(Roofline, WhatFitsACacheIsBoundByTheCache) {
  const auto program = product(1, 100, 100);
  const auto roof = perfmodel::roof_of(machine(), program, program.ops[0]);
  EXPECT_DOUBLE_EQ(roof.roof_s, 4.0 * (100 + 100 * 100 + 100) / 100e9);
  EXPECT_EQ(roof.bound, "L3");
}

TEST(Roofline, AMachineWithoutCeilingsHasNoRoof) {
  const auto program = product(10, 10, 10);
  const auto roof = perfmodel::roof_of({}, program, program.ops[0]);
  EXPECT_EQ(roof.roof_s, 0);
  EXPECT_TRUE(roof.bound.empty());
}

TEST(Roofline, PhasesAndStepAreSumsOfOps) {
  auto program = product(1000, 1000, 1000);
  program::Op again = program.ops[0];
  again.phase = program::Phase::backward;
  program.append(std::move(again), "d");
  const auto rows = perfmodel::predict_roofs(machine(), program);
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[0].subject, "op:0");
  EXPECT_EQ(rows[2].subject, "phase:backward");
  EXPECT_EQ(rows[3].subject, "phase:forward");
  EXPECT_DOUBLE_EQ(rows[3].value, 2e-3);
  EXPECT_DOUBLE_EQ(rows[4].value, 4e-3);
  EXPECT_EQ(rows[4].subject, "step");
  EXPECT_EQ(rows[4].bound, "matmul fp32");
}

TEST(Roofline, WhatMayRunBesideOtherPhasesIsInTheStepOnly) {
  auto program = product(1000, 1000, 1000);  // 2 ms of arithmetic, 1.1 ms of traffic
  const auto thin = product(10'000'000, 1, 1);
  const double thin_s = perfmodel::roof_of(machine(), thin, thin.ops[0]).memory_s;
  const auto tensors = static_cast<program::TensorId>(program.tensors.size());
  program.tensors.insert(program.tensors.end(), thin.tensors.begin(), thin.tensors.end());
  program::Op beside = thin.ops[0];
  for (auto* ids : {&beside.inputs, &beside.outputs}) {
    for (auto& id : *ids) id += tensors;
  }
  beside.phase = program::Phase::optimizer;
  beside.lane = program::Lane::background;
  program.ops.push_back(beside);
  std::map<std::string, double> roofs;
  for (const auto& row : perfmodel::predict_roofs(machine(), program)) roofs[row.subject] = row.value;
  EXPECT_DOUBLE_EQ(roofs.at("phase:forward"), 2e-3);
  EXPECT_FALSE(roofs.contains("phase:optimizer"));
  // All the traffic takes longer than the ops that run one after the other.
  EXPECT_DOUBLE_EQ(roofs.at("step"), 1.1e-3 + thin_s);
}

/// `layers` products of one row with weights of 1000 x 100 fp32 (0.4 MB), each of its own, or all with the
/// first.
program::Program layers_of(int layers, bool share_weights) {
  program::Program program;
  program.add_tensor({.name = "a", .shape = {1, 1000}});
  for (int layer = 0; layer < layers; ++layer) {
    const auto weight =
        share_weights && layer > 0
            ? program::TensorId{1}
            : program.add_tensor({.name = "w", .shape = {1000, 100}, .role = program::Role::weight});
    program::Op op;
    op.def = &program::ops::kMatmul;
    op.inputs = {0, weight};
    op.attrs = {{"batch", 1}, {"m", 1}, {"n", 100}, {"k", 1000}};
    program.append(std::move(op), "c");
  }
  return program;
}

TEST(Roofline, WeightsThatCachesCannotHoldTogetherComeFromMemory) {
  // Two layers fit the cache of 1 MB: 404.4 kB of each op at 100 GB/s.
  const double near_s = 404.4e3 / 100e9;
  for (const auto& roof : perfmodel::roofs_of(machine(), layers_of(2, false))) {
    EXPECT_DOUBLE_EQ(roof.roof_s, near_s);
    EXPECT_EQ(roof.bound, "L3");
  }
  // Ten are 4 MB: the cache can keep a quarter of them, the rest comes at 10 GB/s.
  const program::Program ten = layers_of(10, false);
  double sum = 0;
  for (const auto& roof : perfmodel::roofs_of(machine(), ten)) {
    EXPECT_DOUBLE_EQ(roof.roof_s, 0.75 * 400e3 / 10e9);
    EXPECT_EQ(roof.bound, "DRAM");
    sum += roof.roof_s;
  }
  // What several ops read may be there from the op before.
  for (const auto& roof : perfmodel::roofs_of(machine(), layers_of(10, true)))
    EXPECT_DOUBLE_EQ(roof.roof_s, near_s);
  std::map<std::string, double> roofs;
  for (const auto& row : perfmodel::predict_roofs(machine(), ten)) roofs[row.subject] = row.value;
  EXPECT_DOUBLE_EQ(roofs.at("phase:forward"), sum);
  EXPECT_DOUBLE_EQ(roofs.at("op:3"), 0.75 * 400e3 / 10e9);
}

TEST(Machine, TakesTheCeilingsOfItsDeviceAndThreads) {
  const std::vector<record::Ceiling> ceilings = {
      {.device = "cpu", .what = "matmul", .dtype = "fp32", .threads = 2, .value = 200e9, .unit = "flop/s"},
      {.device = "cpu", .what = "matmul", .dtype = "fp32", .threads = 1, .value = 900e9, .unit = "flop/s"},
      {.device = "cuda:0", .what = "matmul", .dtype = "fp32", .value = 9e12, .unit = "flop/s"},
      {.device = "cpu",
       .what = "instruction",
       .dtype = "fp32",
       .threads = 2,
       .value = 300e9,
       .unit = "flop/s"},
      {.device = "cpu", .what = "read", .level = "DRAM", .threads = 2, .value = 30e9, .unit = "byte/s"},
      {.device = "cpu", .what = "write", .level = "DRAM", .threads = 2, .value = 20e9, .unit = "byte/s"},
      {.device = "cpu", .what = "read", .level = "L2", .threads = 2, .value = 300e9, .unit = "byte/s"}};
  const auto found = Machine::from_ceilings(ceilings, "cpu", 2, {{"L2", 2e6}});
  EXPECT_DOUBLE_EQ(found.flop_per_s.at("fp32"), 200e9);
  ASSERT_EQ(found.levels.size(), 2U);
  EXPECT_EQ(found.levels[0].name, "L2");
  EXPECT_DOUBLE_EQ(found.levels[0].capacity_bytes, 2e6);
  EXPECT_DOUBLE_EQ(found.levels[1].byte_per_s, 30e9);
}

TEST(Roofline, RoofsOfOneOpAddUp) {
  Machine machine;
  machine.flop_per_s["bf16"] = 1e12;
  machine.levels = {{.name = "DRAM", .byte_per_s = 1e9}};
  using perfmodel::OpRoof;
  using perfmodel::Roof;
  using perfmodel::Work;
  const Roof product = perfmodel::roof_of(machine, Work{.dtype = "bf16", .needed_flop = 2e12, .bytes = 1e9});
  EXPECT_DOUBLE_EQ(product.roof_s, 2);
  EXPECT_EQ(product.bound, "matmul bf16");
  const Roof copy = perfmodel::roof_of(machine, Work{.bytes = 3e9});
  EXPECT_DOUBLE_EQ(copy.roof_s, 3);
  EXPECT_EQ(copy.bound, "DRAM");
  const auto rows =
      predict_roofs(machine, std::vector<OpRoof>{{.op = 4, .phase = "forward", .roof = product},
                                                 {.op = 4, .phase = "forward", .roof = copy},
                                                 {.op = 7, .phase = "optimizer", .roof = copy}});
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[0].subject + " " + rows[0].bound, "op:4 DRAM");
  EXPECT_DOUBLE_EQ(rows[0].value, 5);
  EXPECT_EQ(rows[1].subject, "op:7");
  EXPECT_EQ(rows.back().subject, "step");
  EXPECT_DOUBLE_EQ(rows.back().value, 8);
}

}  // namespace
}  // namespace rooflm
