// The arena: offsets, what is alive, and the search for gaps.
#include "compile/passes/plan_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "compile/passes/occupancy.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

using passes::Lifetime;
using passes::MemoryPlan;

struct Placed {
  Lifetime when;
  std::int64_t begin, end;
};

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

/// Tries offsets from the lowest on: 0, and the end of whatever is there.
std::int64_t gap_by_trying(const std::vector<Placed>& placed, Lifetime when, std::int64_t bytes) {
  std::vector<std::int64_t> candidates{0};
  for (const Placed& p : placed) candidates.push_back(p.end);
  std::sort(candidates.begin(), candidates.end());
  return *std::find_if(candidates.begin(), candidates.end(), [&](std::int64_t offset) {
    return std::none_of(placed.begin(), placed.end(), [&](const Placed& p) {
      return overlap(p.when, when) && p.begin < offset + bytes && offset < p.end;
    });
  });
}

TEST(Occupancy, FindsTheLowestGapThatIsFreeAllTheTime) {
  std::mt19937 random(3);
  for (const int ops : {1, 7, 64, 200}) {
    passes::Occupancy occupancy(ops);
    std::vector<Placed> placed;
    for (int i = 0; i < 300; ++i) {
      const int a = static_cast<int>(random() % static_cast<unsigned>(ops));
      const int b = static_cast<int>(random() % static_cast<unsigned>(ops));
      const Lifetime when{.first = std::min(a, b), .last = std::max(a, b)};
      const std::int64_t bytes = 1 + random() % 9;
      const std::int64_t offset = occupancy.lowest_gap(when, bytes);
      ASSERT_EQ(offset, gap_by_trying(placed, when, bytes)) << ops << " ops, range " << i;
      occupancy.add(when, {offset, offset + bytes});
      placed.push_back({when, offset, offset + bytes});
    }
  }
}

/// As storages of layers are placed: by decreasing size, those of one size in the order of time. Half of them
/// live to the end of one of a few windows, as gradients that wait for an early update, so that gaps of many
/// sizes lie below, and searches go on where others ended.
TEST(Occupancy, GoesOnWhereSearchesOfOneSizeEnded) {
  std::mt19937 random(5);
  for (const int ops : {50, 200}) {
    passes::Occupancy occupancy(ops);
    std::vector<Placed> placed;
    for (const std::int64_t bytes : {29, 13, 8, 5, 2, 1}) {
      for (int first = 0; first < ops; ++first) {
        const int short_last = first + static_cast<int>(random() % 9U);
        const int window_last = (first / (ops / 5) + 1 + static_cast<int>(random() % 2U)) * (ops / 5);
        const Lifetime when{.first = first,
                            .last = std::min(ops - 1, first % 2 == 0 ? short_last : window_last)};
        const std::int64_t offset = occupancy.lowest_gap(when, bytes);
        ASSERT_EQ(offset, gap_by_trying(placed, when, bytes)) << ops << " ops, " << bytes << " at " << first;
        occupancy.add(when, {offset, offset + bytes});
        placed.push_back({when, offset, offset + bytes});
      }
    }
  }
}

/// What lives at one time lies apart and inside the arena, and its sum is at most the arena.
void expect_sound(const program::Program& p, const MemoryPlan& plan) {
  std::vector<std::int64_t> live(p.ops.size(), 0);
  for (std::size_t i = 0; i < plan.storages.size(); ++i) {
    const passes::Storage& a = plan.storages[i];
    EXPECT_LE(a.offset + a.bytes, plan.arena_bytes);
    for (int op = a.lifetime.first; op <= a.lifetime.last; ++op)
      live[static_cast<std::size_t>(op)] += a.bytes;
    for (const program::TensorId id : a.tensors) {
      EXPECT_EQ(plan.storage_of[static_cast<std::size_t>(id)], static_cast<int>(i));
      EXPECT_LE(p.tensor(id).bytes(), a.bytes);
    }
    for (std::size_t k = 0; k < i; ++k) {
      const passes::Storage& b = plan.storages[k];
      const bool meet = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      EXPECT_FALSE(meet && overlap(a.lifetime, b.lifetime));
    }
  }
  EXPECT_EQ(*std::max_element(live.begin(), live.end()), plan.peak_live_bytes);
  EXPECT_LE(plan.peak_live_bytes, plan.arena_bytes);
}

TEST(PlanMemory, NothingAliveExceedsTheArena) {
  for (const char* name : {"tiny", "small", "gpt2"}) {
    const auto forward = model::forward(model::preset(name), 2, 64);
    for (const auto engine : {compile::EngineKind::eager, compile::EngineKind::fused}) {
      for (const auto recompute :
           {passes::Recompute::none, passes::Recompute::selective, passes::Recompute::full}) {
        for (const double clip : {0.0, 1.0}) {
          const auto step = compile::training_step(forward, {.engine = engine,
                                                             .attention = compile::default_attention(engine),
                                                             .dtype = core::DType::bf16,
                                                             .recompute = recompute,
                                                             .micro_batches = 2,
                                                             .optimizer = {.clip_norm = clip}});
          SCOPED_TRACE(std::string(name) + " " + std::string(compile::name_of(engine)) + " " +
                       std::string(passes::name_of(recompute)));
          expect_sound(step, passes::plan_memory(step));
        }
      }
    }
  }
}

MemoryPlan plan_of_layers(std::int64_t layers, const compile::StepOptions& options) {
  model::ModelConfig config = model::preset("gpt2");
  config.layers = layers;
  return passes::plan_memory(compile::training_step(model::forward(config, 4, 64), options));
}

/// Each layer adds the same bytes, and the whole step is planned in a moment.
TEST(PlanMemory, TwoThousandLayersAddUp) {
  const std::int64_t arena_50 = plan_of_layers(50, {}).arena_bytes;
  const std::int64_t layer = plan_of_layers(51, {}).arena_bytes - arena_50;
  EXPECT_EQ(plan_of_layers(2000, {}).arena_bytes, arena_50 + 1950 * layer);
}

/// Lists of ranges that the search for one storage's place looks into, on average.
double lookups_per_storage(MemoryPlan plan) {
  std::stable_sort(plan.storages.begin(), plan.storages.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  int last = 0;
  for (const passes::Storage& s : plan.storages) last = std::max(last, s.lifetime.last);
  passes::Occupancy occupancy(last + 1);
  for (const passes::Storage& s : plan.storages) {
    EXPECT_EQ(occupancy.lowest_gap(s.lifetime, s.bytes), s.offset);
    occupancy.add(s.lifetime, {s.offset, s.offset + s.bytes});
  }
  return static_cast<double>(occupancy.lookups()) / static_cast<double>(plan.storages.size());
}

/// Eight times the layers or micro-batches take a few lookups more per storage, as log ops does; a search
/// that looks at all that is alive would take eight times as many.
TEST(PlanMemory, TakesNearLinearTime) {
  for (const double clip : {0.0, 1.0}) {
    const compile::StepOptions options{.optimizer = {.clip_norm = clip}};
    const double few = lookups_per_storage(plan_of_layers(50, options));
    EXPECT_LT(lookups_per_storage(plan_of_layers(400, options)), 3 * few) << clip;
  }
  const auto accumulated = [](int micro_batches) {
    return lookups_per_storage(plan_of_layers(4, {.micro_batches = micro_batches, .optimizer = {}}));
  };
  EXPECT_LT(accumulated(80), 3 * accumulated(10));
}

}  // namespace
}  // namespace rooflm
