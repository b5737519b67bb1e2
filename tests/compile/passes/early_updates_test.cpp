// Updates that run beside the backward pass: their places, what they wait for, and the memory they take.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "compile/passes/plan_memory.h"
#include "program/ops.h"
#include "program/update.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

namespace ops = program::ops;
using passes::Recompute;
using program::Lane;
using program::Op;
using program::Program;

/// Indices of the updates in a program.
std::vector<std::size_t> updates_of(const Program& p) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    if (p.ops[i].is(ops::kAdamW)) found.push_back(i);
  }
  return found;
}

bool touches(const std::vector<program::TensorId>& operands, program::TensorId id) {
  return std::find(operands.begin(), operands.end(), id) != operands.end();
}

TEST(EarlyUpdates, ComeAfterTheLastUseOfWeightAndGradient) {
  const auto forward = model::forward(model::preset("gpt2"), 2, 64);
  for (const int micro_batches : {1, 2}) {
    const Program p = compile::training_step(forward, {.dtype = core::DType::bf16,
                                                       .recompute = Recompute::full,
                                                       .micro_batches = micro_batches,
                                                       .optimizer = {.clip_norm = 0}});
    const auto updates = updates_of(p);
    ASSERT_GT(updates.size(), 6U);
    std::set<program::TensorId> updated;
    for (const std::size_t i : updates) {
      const Op& update = p.ops[i];
      EXPECT_EQ(update.lane, i == updates.back() ? Lane::compute : Lane::background);
      EXPECT_EQ(update.waits.empty(), i != updates.back());
      const program::UpdateView view(update);
      for (std::size_t k = 0; k < view.count(); ++k) {
        EXPECT_TRUE(updated.insert(view.weight(k)).second) << p.tensor(view.weight(k)).name;
      }
      for (std::size_t later = i + 1; later < p.ops.size(); ++later) {
        for (const program::TensorId id : update.outputs) {
          EXPECT_FALSE(id != program::kNone && touches(p.ops[later].inputs, id)) << p.tensor(id).name;
        }
        for (std::size_t k = 0; k < view.count(); ++k) {
          EXPECT_FALSE(touches(p.ops[later].outputs, view.gradient(k))) << p.tensor(view.gradient(k)).name;
        }
      }
    }
    EXPECT_EQ(updated.size(), static_cast<std::size_t>(std::count_if(
                                  forward.tensors.begin(), forward.tensors.end(),
                                  [](const auto& t) { return t.role == program::Role::weight; })));
  }
}

/// The first op of the main lane that begins after op `i` of the background, found step by step, as a device
/// does it.
std::size_t done_at(const Program& p, std::size_t i) {
  for (std::size_t k = i + 1; k < p.ops.size(); ++k) {
    const auto& waits = p.ops[k].waits;
    const bool waits_for_it =
        std::any_of(waits.begin(), waits.end(), [&](int wait) { return wait >= static_cast<int>(i); });
    if (waits_for_it) return k;
  }
  return p.ops.size();
}

/// Whether two transient tensors share memory.
bool overlap(const Program& p, const passes::MemoryPlan& plan, program::TensorId a, program::TensorId b) {
  if (a == program::kNone || b == program::kNone) return false;
  const auto x = plan.offsets.at(static_cast<std::size_t>(a));
  const auto y = plan.offsets.at(static_cast<std::size_t>(b));
  if (x < 0 || y < 0) return a == b;
  return x < y + p.tensor(b).bytes() && y < x + p.tensor(a).bytes();
}

/// Nothing that runs meanwhile in the main order touches what an op beside writes, or writes what it reads.
void expect_undisturbed(const Program& p, const passes::MemoryPlan& plan, std::size_t i) {
  const Op& beside = p.ops[i];
  for (std::size_t k = i + 1; k < done_at(p, i); ++k) {
    if (p.ops[k].lane == Lane::background) continue;  // these run one after the other
    for (const program::TensorId written : beside.outputs) {
      for (const auto* operands : {&p.ops[k].inputs, &p.ops[k].outputs}) {
        for (const program::TensorId id : *operands) {
          EXPECT_FALSE(overlap(p, plan, written, id)) << p.tensor(written).name << ", " << p.tensor(id).name;
        }
      }
    }
    for (const program::TensorId read : beside.inputs) {
      for (const program::TensorId id : p.ops[k].outputs) {
        EXPECT_FALSE(overlap(p, plan, read, id)) << p.tensor(read).name << ", " << p.tensor(id).name;
      }
    }
  }
}

TEST(EarlyUpdates, AreNotDisturbedByWhatRunsMeanwhile) {
  for (const char* name : {"gpt2", "small"}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      const Program p = compile::training_step(
          model::forward(model::preset(name), 4, 64),
          {.dtype = core::DType::bf16, .recompute = recompute, .optimizer = {.clip_norm = 0}});
      const auto plan = passes::plan_memory(p);
      std::size_t matmuls = 0;
      std::size_t waits = 0;
      for (std::size_t i = 0; i < p.ops.size(); ++i) {
        waits += p.ops[i].waits.size();
        if (p.ops[i].lane != Lane::background) continue;
        matmuls += p.ops[i].is(ops::kMatmul) ? 1 : 0;
        expect_undisturbed(p, plan, i);
      }
      EXPECT_GT(matmuls, 40U);
      EXPECT_GT(waits, 3U);
    }
  }
}

/// A processor runs one op after the other: the same program without lanes, whose memory nothing beside it
/// holds.
TEST(EarlyUpdates, StayOnTheLaneOfADeviceThatHasOne) {
  for (const char* name : {"gpt2", "small"}) {
    const auto forward = model::forward(model::preset(name), 4, 64);
    const auto with = [&](bool background) {
      return compile::training_step(forward, {.background = background, .optimizer = {.clip_norm = 0}});
    };
    const Program beside = with(true);
    const Program alone = with(false);
    ASSERT_EQ(alone.ops.size(), beside.ops.size());
    for (std::size_t i = 0; i < alone.ops.size(); ++i) {
      EXPECT_EQ(alone.ops[i].def, beside.ops[i].def) << i;
      EXPECT_EQ(alone.ops[i].lane, Lane::compute) << i;
      EXPECT_TRUE(alone.ops[i].waits.empty()) << i;
    }
    EXPECT_GT(updates_of(alone).size(), 3U);
    EXPECT_LT(updates_of(alone)[0], alone.ops.size() / 2);
    EXPECT_LE(passes::plan_memory(alone).arena_bytes, passes::plan_memory(beside).arena_bytes);
  }
}

/// With a loss scale the norm says whether gradients are finite: no update may come before it.
TEST(EarlyUpdates, WaitForTheLossScale) {
  const Program p = compile::training_step(model::forward(model::preset("gpt2"), 2, 64),
                                           {.dtype = core::DType::f16, .optimizer = {.clip_norm = 0}});
  EXPECT_EQ(updates_of(p).size(), 2U);
  for (const Op& op : p.ops) EXPECT_EQ(op.lane, Lane::compute);
}

TEST(EarlyUpdates, TakeLessMemoryThanAllGradients) {
  const auto arena = [](double clip_norm) {
    const auto forward = model::forward(model::preset("small"), 4, 64);
    return passes::plan_memory(compile::training_step(forward, {.dtype = core::DType::bf16,
                                                                .optimizer = {.clip_norm = clip_norm}}))
        .arena_bytes;
  };
  EXPECT_LT(arena(0), arena(1) * 3 / 4);
}

TEST(EarlyUpdates, WaitForTheNormWhenClipping) {
  const Program p = compile::training_step(model::forward(model::preset("gpt2"), 2, 64), {.optimizer = {}});
  EXPECT_EQ(updates_of(p).size(), 2U);
  EXPECT_EQ(updates_of(p).back(), p.ops.size() - 1);
  for (const std::size_t i : updates_of(p)) EXPECT_EQ(p.ops[i].lane, Lane::compute);
}

}  // namespace
}  // namespace rooflm
