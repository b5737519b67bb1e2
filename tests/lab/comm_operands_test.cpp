// Collectives of `rooflm comm` on threads: their results are right, and what is wrong is counted.
#include "lab/micro/comm_operands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/comm/kernels.h"
#include "backends/registry.h"
#include "tests/in_process/run_ranks.h"

namespace rooflm::lab {
namespace {

using backends::comm::Communicator;
using program::Group;

/// Spoils the first element of every sum.
class Spoiler final : public Communicator {
 public:
  explicit Spoiler(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  void all_reduce(Group group, Transfers whole) override {
    inner_->all_reduce(group, whole);
    std::memset(whole.front().to, 0, core::size_of(whole.front().dtype));
  }
  void all_gather(Group group, Transfers whole) override { inner_->all_gather(group, whole); }
  void reduce_scatter(Group group, Transfers whole, bool accumulate) override {
    inner_->reduce_scatter(group, whole, accumulate);
  }
  void pass_on(Group group, Transfers whole) override { inner_->pass_on(group, whole); }
  void send(const backends::comm::Message& message, const void* from, std::int64_t bytes) override {
    inner_->send(message, from, bytes);
  }
  void receive(const backends::comm::Message& message, void* to, std::int64_t bytes) override {
    inner_->receive(message, to, bytes);
  }

 private:
  std::shared_ptr<Communicator> inner_;
};

/// Wrong elements of all ranks after as many runs.
std::int64_t wrong_of(const CommProblem& problem, int ranks, bool is_spoiled, int runs = 1) {
  std::atomic<std::int64_t> wrong = 0;
  backends::comm::run_ranks({.data = ranks}, [&](int rank, std::shared_ptr<Communicator> communicator) {
    if (is_spoiled) communicator = std::make_shared<Spoiler>(communicator);
    const auto backend = backends::provider_of("cpu").make("cpu", {.threads = 1});
    backend->add_kernels(backends::comm::kernels_of(communicator));
    CommOperands operands(*backend, problem, ranks, rank);
    operands.fill();
    for (int i = 0; i < runs; ++i) operands.run();
    wrong += operands.wrong();
  });
  return wrong;
}

TEST(CommOperands, ResultsAreRight) {
  for (const CommOp op :
       {CommOp::all_reduce, CommOp::all_gather, CommOp::reduce_scatter, CommOp::send_receive}) {
    for (const core::DType dtype : {core::DType::f32, core::DType::bf16, core::DType::f16}) {
      for (const bool in_place : {false, true}) {
        if (in_place && op == CommOp::send_receive) continue;
        const CommProblem problem{.op = op, .dtype = dtype, .bytes = 1001, .in_place = in_place};
        EXPECT_EQ(wrong_of(problem, 3, false), 0)
            << name_of(op) << ' ' << core::name_of(dtype) << ' ' << in_place;
      }
    }
  }
}

TEST(CommOperands, WhatIsWrongIsCounted) {
  const CommProblem problem{.op = CommOp::all_reduce, .bytes = 400};
  EXPECT_EQ(wrong_of(problem, 2, true), 2) << "one element of each rank";
  EXPECT_EQ(wrong_of(problem, 2, false, 0), 200) << "nothing was sent";
  const CommProblem in_place{.op = CommOp::all_reduce, .bytes = 400, .in_place = true};
  EXPECT_GT(wrong_of(in_place, 2, false, 2), 0) << "added up twice";
}

TEST(CommProblem, CountsAsNcclTestsDo) {
  const CommProblem reduce{.op = CommOp::all_reduce, .bytes = 1026};
  EXPECT_EQ(reduce.count(4), 256);
  EXPECT_EQ(reduce.size(4), 1024);
  EXPECT_DOUBLE_EQ(reduce.bus_factor(4), 1.5);
  const CommProblem gather{.op = CommOp::all_gather, .bytes = 1026};
  EXPECT_EQ(gather.count(3), 85);
  EXPECT_EQ(gather.size(3), 1020);
  EXPECT_DOUBLE_EQ(gather.bus_factor(3), 2.0 / 3);
  EXPECT_DOUBLE_EQ((CommProblem{.op = CommOp::send_receive}.bus_factor(3)), 1);
}

TEST(MeasuredComm, KeepsRatesOfTheMedian) {
  const std::vector<double> samples{1e-3, 2e-3, 4e-3};
  MeasuredComm row{.what = {.dtype = "fp32", .problem = {.op = CommOp::all_reduce, .bytes = 4000}},
                   .ranks = 2,
                   .device = "cpu",
                   .carrier = "sockets"};
  row.result = CommResult{.seconds = core::summarise(samples), .calls = 7, .wrong = 0};
  std::map<std::string, double> values;
  for (const record::Cell& cell : cells_of({&row, 1})) {
    if (cell.value) values[cell.col] = *cell.value;
  }
  EXPECT_DOUBLE_EQ(values.at("time_us"), 2000);
  EXPECT_DOUBLE_EQ(values.at("algbw"), 2e6);
  EXPECT_DOUBLE_EQ(values.at("busbw"), 2e6);
  EXPECT_EQ(values.at("wrong"), 0);
  row.result.reset();
  EXPECT_TRUE(std::ranges::none_of(cells_of({&row, 1}),
                                   [](const record::Cell& cell) { return cell.col == "time_us"; }));
}

}  // namespace
}  // namespace rooflm::lab
