// What a program says about itself: attributes, lanes and waits, updates.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string_view>

#include "program/builder.h"
#include "program/ops.h"
#include "program/update.h"

namespace rooflm::program {
namespace {

TEST(Attributes, AreReadAsWhatTheyWereSetAs) {
  Attributes attrs{{"heads", 12}, {"eps", 1e-5}, {"accumulate", true}};
  EXPECT_EQ(attrs.integer("heads"), 12);
  EXPECT_EQ(attrs.number("eps"), 1e-5);
  EXPECT_TRUE(attrs.flag("accumulate"));
  EXPECT_FALSE(attrs.flag("absent"));
  EXPECT_THROW(static_cast<void>(attrs.integer("eps")), std::logic_error);
  EXPECT_THROW(static_cast<void>(attrs.number("heads")), std::logic_error);
  EXPECT_THROW(static_cast<void>(attrs.flag("heads")), std::logic_error);
  EXPECT_THROW(static_cast<void>(attrs.integer("absent")), std::logic_error);
  attrs.set("heads", (std::int64_t{1} << 60U) + 1);
  EXPECT_EQ(attrs.integer("heads"), (std::int64_t{1} << 60U) + 1);
}

TEST(Costs, AccumulatedPositionsAreThoseOfTheTokens) {
  constexpr std::int64_t kPositions = 1024;
  for (const bool accumulate : {false, true}) {
    Program p;
    Builder b(p);
    const TensorId dy = p.add_tensor({.name = "dy", .shape = {2, 8, 16}, .role = Role::input});
    b.op(ops::kAddPositionsBackward, {dy}, {{"positions", kPositions}, {"accumulate", accumulate}}, "d_wpe");
    const Cost cost = cost_of(p, p.ops.front());
    EXPECT_EQ(cost.bytes_read, (accumulate ? 2 * 8 * 16 + 8 * 16 : 2 * 8 * 16) * 4);
    EXPECT_EQ(cost.bytes_written, (accumulate ? 8 : kPositions) * 16 * 4);
  }
}

/// Five sums, one after the other in the program.
Program five_ops() {
  Program p;
  Builder b(p);
  const TensorId x = p.add_tensor({.name = "x", .shape = {4}, .role = Role::input});
  for (int i = 0; i < 5; ++i) b.op(ops::kAdd, {x, x}, {}, "y");
  return p;
}

TEST(Lanes, AnOpIsDoneWhereTheMainLaneWaitsForItOrForALaterOne) {
  Program p = five_ops();
  EXPECT_EQ(done_by(p), (std::vector<int>{0, 1, 2, 3, 4}));
  p.ops[0].lane = Lane::background;
  p.ops[1].lane = Lane::background;
  p.ops[3].waits = {1};
  EXPECT_EQ(done_by(p), (std::vector<int>{3, 3, 2, 3, 4}));
  p.ops[3].waits = {0};
  EXPECT_EQ(done_by(p), (std::vector<int>{3, 5, 2, 3, 4}));
  EXPECT_THROW(check(p), std::logic_error);  // nothing waits for op 1
}

TEST(Lanes, WaitsReachThroughOtherLanes) {
  Program p = five_ops();
  p.ops[0].lane = Lane::communication;
  p.ops[1].lane = Lane::background;
  p.ops[1].waits = {0};
  p.ops[4].waits = {1};
  EXPECT_EQ(done_by(p), (std::vector<int>{4, 4, 2, 3, 4}));
  EXPECT_NO_THROW(check(p));
}

TEST(Lanes, WaitsAreForEarlierOpsOfOtherLanes) {
  for (const int wait : {-1, 0, 3, 4, 9}) {
    Program p = five_ops();
    p.ops[3].waits = {wait};
    EXPECT_THROW(check(p), std::logic_error) << wait;
  }
  Program p = five_ops();
  p.ops[0].lane = p.ops[1].lane = Lane::copy;
  p.ops[1].waits = {0};
  p.ops[2].waits = {1};
  EXPECT_THROW(check(p), std::logic_error);  // of its own lane
}

Op update_of(const OpDef& def, std::vector<TensorId> inputs, std::vector<TensorId> outputs, bool copies) {
  Op op;
  op.def = &def;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.attrs = {{"copies", copies}};
  return op;
}

TEST(Updates, OperandsHaveNames) {
  Op all = update_of(ops::kAdamW, {1, kNone, 10, 11, 12, 13}, {10, 12, 13, 14}, true);
  append_update(all, update_of(ops::kAdamW, {1, kNone, 20, 21, 22, 23}, {20, 22, 23, kNone}, true));
  EXPECT_EQ(all.outputs, (std::vector<TensorId>{10, 12, 13, 20, 22, 23, 14, kNone}));
  const UpdateView view(all);
  ASSERT_EQ(view.count(), 2U);
  EXPECT_EQ(view.hyper(), 1);
  EXPECT_EQ(view.norm(), kNone);
  EXPECT_EQ(view.weight(1), 20);
  EXPECT_EQ(view.gradient(1), 21);
  EXPECT_EQ(view.moment(1, 1), 23);
  EXPECT_EQ(view.copy(0), 14);
  EXPECT_EQ(view.copy(1), kNone);
  const Op second = single_update(all, 1);
  EXPECT_EQ(second.inputs, (std::vector<TensorId>{1, kNone, 20, 21, 22, 23}));
  EXPECT_EQ(second.outputs, (std::vector<TensorId>{20, 22, 23, kNone}));

  Op sgd = update_of(ops::kSgd, {1, 2, 10, 11}, {10}, false);
  append_update(sgd, update_of(ops::kSgd, {1, 2, 20, 21}, {20}, false));
  EXPECT_EQ(UpdateView(sgd).gradient(1), 21);
  EXPECT_EQ(UpdateView(sgd).copy(0), kNone);
}

TEST(Ops, AreListedOnceWithAClassOfWork) {
  std::set<std::string_view> names;
  for (const OpDef* def : ops::all()) {
    EXPECT_TRUE(names.insert(def->name).second) << def->name;
    EXPECT_FALSE(name_of(def->work).empty());
  }
  EXPECT_TRUE(names.contains("matmul"));
  EXPECT_TRUE(names.contains("sgd"));
}

}  // namespace
}  // namespace rooflm::program
