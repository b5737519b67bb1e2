// Calls of operators shared by the kernels that they launch, and steps that were not noted.
#include "foreign/kernel_work.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rooflm::foreign {
namespace {

PricedNote note(std::vector<std::uint32_t> calls, double flop, double bytes) {
  PricedNote made;
  made.note = {.op = "aten::mm",
               .in = {{.dtype = "bfloat16", .shape = {8, 16}}, {.dtype = "bfloat16", .shape = {16, 4}}},
               .out = {{.dtype = "bfloat16", .shape = {8, 4}}},
               .calls = std::move(calls)};
  made.work = {.dtype = flop > 0 ? "bf16" : "",
               .matmul_flop = flop,
               .needed_flop = flop,
               .bytes_read = bytes,
               .far_bytes = bytes / 2};
  return made;
}

class KernelWorkTest : public testing::Test {
 protected:
  void run(std::size_t step, std::uint32_t name, std::uint32_t call, std::uint64_t ns, std::int64_t op = 0,
           std::uint32_t replay = 0) {
    executions_.push_back(
        {.op = op, .name = name, .call = call, .replay = replay, .step = step, .duration_ns = ns});
  }
  void share() {
    shared_ = share_work(notes_, executions_,
                         [this](std::uint32_t name) { return std::string_view(names_.at(name)); });
  }
  /// Of that execution; all 0 without a price.
  record::KernelWork of(std::size_t i) {
    return shared_.of.at(i) ? shared_.works.at(static_cast<std::size_t>(*shared_.of[i]))
                            : record::KernelWork{};
  }

  std::map<std::uint32_t, std::string> names_ = {{1, "nvjet_tst_128x256"},
                                                 {2, "cublasLt::splitKreduce_kernel"},
                                                 {3, "vectorized_elementwise_kernel"},
                                                 {4, "nvjet_tst_64x64"}};
  std::vector<PricedNote> notes_;
  std::vector<Execution> executions_;
  KernelWorks shared_;
};

TEST_F(KernelWorkTest, TwoMatmulsOfOneModuleHaveTheirOwn) {
  notes_ = {note({1}, 1000, 10), note({2}, 3000, 30)};
  run(1, 1, 1, 100);
  run(1, 1, 2, 300);
  share();
  EXPECT_DOUBLE_EQ(of(0).matmul_flop, 1000);
  EXPECT_DOUBLE_EQ(of(1).matmul_flop, 3000);
  EXPECT_DOUBLE_EQ(of(1).bytes, 30);
  EXPECT_DOUBLE_EQ(of(1).far_bytes, 15);
  EXPECT_EQ(of(1).call, "aten::mm");
  EXPECT_EQ(of(1).shapes, "[8,16] x [16,4] -> [8,4]");
}

TEST_F(KernelWorkTest, WhatSumsPartsComputesNothing) {
  notes_ = {note({1, 2}, 1000, 100)};
  for (const std::uint32_t call : {1U, 2U}) {
    run(1, 1, call, 75);
    run(1, 2, call, 25);
  }
  share();
  EXPECT_DOUBLE_EQ(of(0).matmul_flop, 1000);
  EXPECT_DOUBLE_EQ(of(2).bytes, 75);
  EXPECT_DOUBLE_EQ(of(1).matmul_flop, 0);
  EXPECT_DOUBLE_EQ(of(1).bytes, 25);
  EXPECT_EQ(of(1).dtype, "");
  EXPECT_EQ(shared_.works.size(), 2U) << "calls with the same shapes are one price";
}

TEST_F(KernelWorkTest, KernelsOfOneKindShareTheirCallByTime) {
  notes_ = {note({1}, 1000, 10)};
  run(1, 1, 1, 300);
  run(1, 4, 1, 100);
  share();
  EXPECT_DOUBLE_EQ(of(0).matmul_flop, 750);
  EXPECT_DOUBLE_EQ(of(1).matmul_flop, 250);
}

TEST_F(KernelWorkTest, OtherStepsDoTheSameWhereTheyLaunchTheSame) {
  notes_ = {note({1}, 1000, 10), note({2}, 3000, 30)};
  run(0, 1, 0, 90);
  run(0, 1, 0, 290);
  run(1, 1, 1, 100);
  run(1, 1, 2, 300);
  run(1, 3, 0, 50);  // outside of operators
  run(2, 1, 0, 110);
  run(2, 1, 0, 310);
  run(2, 3, 0, 50);
  run(2, 1, 0, 100, 7);  // of an op that launched nothing in that step
  share();
  EXPECT_DOUBLE_EQ(of(0).matmul_flop, 1000);
  EXPECT_DOUBLE_EQ(of(1).matmul_flop, 3000);
  EXPECT_DOUBLE_EQ(of(6).matmul_flop, 3000);
  EXPECT_FALSE(shared_.of[4]);
  EXPECT_FALSE(shared_.of[7]);
  EXPECT_FALSE(shared_.of[8]);
}

TEST_F(KernelWorkTest, WhereAnOpLaunchesOthersTheyShareAllOfIt) {
  notes_ = {note({1, 2}, 1000, 100)};
  run(1, 1, 1, 100);
  run(1, 1, 2, 100);
  run(2, 1, 0, 150);
  run(2, 4, 0, 50);
  run(2, 4, 0, 50);
  run(2, 3, 0, 250);
  share();
  EXPECT_DOUBLE_EQ(of(2).matmul_flop, 2000 * 0.6);
  EXPECT_DOUBLE_EQ(of(3).matmul_flop, 2000 * 0.2);
  EXPECT_DOUBLE_EQ(of(5).matmul_flop, 0);
  double bytes = 0;
  for (std::size_t i = 2; i < 6; ++i) bytes += of(i).bytes;
  EXPECT_DOUBLE_EQ(bytes, 200);
}

TEST_F(KernelWorkTest, NodesOfAGraphAreOfTheCallThatCapturedThem) {
  notes_ = {note({1}, 1000, 10)};
  for (const std::uint32_t replay : {5U, 6U, 7U}) {
    run(replay, 1, 1, 75, 0, replay);
    run(replay, 2, 1, 25, 0, replay);
  }
  share();
  for (const std::size_t i : {0U, 2U, 4U}) EXPECT_DOUBLE_EQ(of(i).matmul_flop, 1000);
  EXPECT_EQ(shared_.works.size(), 2U);
}

TEST_F(KernelWorkTest, WithoutNotesThereIsNoPrice) {
  run(0, 1, 0, 90);
  run(1, 1, 3, 90);  // of a call whose note could not be read
  share();
  EXPECT_TRUE(shared_.works.empty());
  EXPECT_FALSE(shared_.of[0]);
  EXPECT_FALSE(shared_.of[1]);
}

}  // namespace
}  // namespace rooflm::foreign
