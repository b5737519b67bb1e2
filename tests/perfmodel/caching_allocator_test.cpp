// What PyTorch's caching allocator holds, with answers by hand.
#include "perfmodel/caching_allocator.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compile/planned/collective_copies.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm {
namespace {

using program::Op;
using program::Program;
using program::TensorId;

constexpr std::int64_t kKilobyte = 256;  // elements of fp32

TensorId tensor(Program& program, std::int64_t kilobytes) {
  return program.add_tensor({.name = "t" + std::to_string(program.tensors.size()),
                             .shape = {kilobytes * kKilobyte},
                             .role = program::Role::workspace});
}

Op& write(Program& program, const program::OpDef& def, std::vector<TensorId> in, std::vector<TensorId> out) {
  Op op;
  op.def = &def;
  op.inputs = std::move(in);
  op.outputs = std::move(out);
  program.ops.push_back(std::move(op));
  return program.ops.back();
}

/// logits -> fp32 -> log softmax -> gradient -> gradient: what is freed first is too small for what comes.
TEST(CachingAllocator, KeepsAHoleThatNothingFits) {
  Program p;
  const TensorId logits = tensor(p, 4);
  const TensorId wide = tensor(p, 8);
  const TensorId kept = tensor(p, 8);
  const TensorId picked = tensor(p, 8);
  const TensorId gradient = tensor(p, 8);
  write(p, program::ops::kAdd, {}, {logits});
  write(p, program::ops::kAdd, {logits}, {wide});
  write(p, program::ops::kAdd, {wide}, {kept});
  write(p, program::ops::kAdd, {}, {picked});
  write(p, program::ops::kAdd, {picked, kept}, {gradient});
  // 24 KB are alive at most. `picked` takes the place of `logits` and `wide`, and leaves 4 KB of it.
  EXPECT_EQ(perfmodel::reserved_bytes(p, perfmodel::held_lifetimes(p, {})).total(), 28 * 1024);
}

TEST(CachingAllocator, TakesTheSmallestBlockThatFitsAndTheEndGrows) {
  Program p;
  const TensorId large = tensor(p, 6);
  const TensorId between = tensor(p, 1);
  const TensorId small = tensor(p, 2);
  const TensorId after = tensor(p, 1);
  const TensorId other = tensor(p, 2);
  const TensorId last = tensor(p, 7);
  write(p, program::ops::kAdd, {}, {large});
  write(p, program::ops::kAdd, {}, {between});
  write(p, program::ops::kAdd, {}, {small});
  write(p, program::ops::kAdd, {large, small}, {after});
  // Into the place of `small`; 7 KB go into that of `large` and behind it only if `between` were free.
  write(p, program::ops::kAdd, {}, {other});
  write(p, program::ops::kAdd, {between, after, other}, {last});
  EXPECT_EQ(perfmodel::reserved_bytes(p, perfmodel::held_lifetimes(p, {})).total(),
            (6 + 1 + 2 + 1 + 7) * 1024);
}

TEST(CachingAllocator, StreamsDoNotShareMemory) {
  Program p;
  const TensorId part = tensor(p, 1);
  const TensorId whole = tensor(p, 4);
  const TensorId later = tensor(p, 4);
  const program::Attributes data{{"group", static_cast<std::int64_t>(program::Group::data)}};
  write(p, program::ops::kAdd, {}, {part});
  write(p, program::ops::kAllGather, {part}, {whole}).attrs = data;
  write(p, program::ops::kAdd, {whole}, {part});
  write(p, program::ops::kAdd, {part}, {later});
  EXPECT_EQ(perfmodel::reserved_bytes(p, perfmodel::held_lifetimes(p, {})).total(), (1 + 4 + 4) * 1024);
}

TEST(CachingAllocator, PartsOfWeightsAreCastForEachGather) {
  Program p;
  const TensorId weight = p.add_tensor({.name = "w", .shape = {kKilobyte}, .role = program::Role::weight});
  const TensorId part = tensor(p, 1);
  const TensorId whole = tensor(p, 4);
  const program::Attributes data{{"group", static_cast<std::int64_t>(program::Group::data)}};
  write(p, program::ops::kCast, {weight}, {part});
  write(p, program::ops::kAdd, {}, {tensor(p, 2)});
  write(p, program::ops::kAllGather, {part}, {whole}).attrs = data;
  const auto lives = perfmodel::held_lifetimes(p, {});
  EXPECT_EQ(lives[static_cast<std::size_t>(part)].first, 2);
  EXPECT_EQ(perfmodel::reserved_bytes(p, lives).compute, 2 * 1024);
}

TEST(CachingAllocator, TheLastLayerIsNotGatheredTwice) {
  Program p;
  const auto gathered = [&](const char* scope, program::Phase phase) {
    const TensorId unit = p.add_tensor({.name = "u" + std::to_string(p.tensors.size()),
                                        .shape = {kKilobyte},
                                        .role = program::Role::gathered_weight});
    Op& op = write(p, passes::kRearrange, {}, {unit});
    op.scope = scope;
    op.phase = phase;
    write(p, program::ops::kAdd, {unit}, {tensor(p, 1)}).scope = scope;
    return static_cast<std::size_t>(unit);
  };
  const std::size_t first = gathered("h.0", program::Phase::forward);
  const std::size_t last = gathered("h.1", program::Phase::forward);
  write(p, program::ops::kAdd, {}, {tensor(p, 1)});  // the loss
  gathered("h.1", program::Phase::backward);
  gathered("h.0", program::Phase::backward);
  EXPECT_EQ(perfmodel::held_lifetimes(p, {})[last].last, 3);
  const auto held = perfmodel::held_lifetimes(p, {.keeps_last_layer = true});
  EXPECT_EQ(held[first].last, 1);
  EXPECT_EQ(held[last].last, 4);  // until it would be gathered again
}

}  // namespace
}  // namespace rooflm
