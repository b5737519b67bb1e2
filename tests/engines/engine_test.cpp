// What an engine promises about memory and time, whatever the kernels.
#include "engines/engine.h"

#include <gtest/gtest.h>

#include <set>

#include "backends/null/null_backend.h"
#include "core/error.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

using compile::EngineKind;

/// Adds up what it is told.
class Ledger final : public engines::Observer {
 public:
  void on_op_begin(const program::Program&, std::size_t) override { ++ops; }
  void on_op_end(const program::Program&, std::size_t) override {}
  void on_allocate(const program::Program& p, program::TensorId id, std::int64_t live) override {
    EXPECT_TRUE(alive.insert(id).second) << p.tensor(id).name << " allocated twice";
    EXPECT_EQ(live, live_bytes += p.tensor(id).bytes());
    peak = std::max(peak, live);
  }
  void on_free(const program::Program& p, program::TensorId id, std::int64_t live) override {
    EXPECT_EQ(alive.erase(id), 1U) << p.tensor(id).name << " freed but not alive";
    EXPECT_EQ(live, live_bytes -= p.tensor(id).bytes());
  }
  std::set<program::TensorId> alive;
  std::int64_t live_bytes = 0;
  std::int64_t peak = 0;
  std::size_t ops = 0;
};

TEST(Engine, EagerFreesEachTensorAfterItsLastUse) {
  const auto backend = backends::make_null_backend();
  engines::TensorStore store(*backend);
  const compile::StepOptions options{.engine = compile::EngineKind::eager,
                                     .attention = passes::AttentionKind::batched};
  engines::Engine engine(tests::small_step(model::Arch::gpt2, options), compile::EngineKind::eager, store);
  Ledger ledger;
  engine.run(&ledger);
  EXPECT_TRUE(ledger.alive.empty());
  EXPECT_EQ(ledger.peak, engine.peak_transient_bytes());
  EXPECT_LE(ledger.peak, engine.plan().unshared_peak_bytes);  // the plan counts in lines of 64 bytes
  EXPECT_EQ(ledger.ops, engine.program().ops.size());
}

TEST(Engine, FusedAllocatesNothingInAStep) {
  const auto backend = backends::make_null_backend();
  engines::TensorStore store(*backend);
  engines::Engine engine(tests::small_step(model::Arch::llama, {}), compile::EngineKind::fused, store);
  Ledger ledger;
  engine.run(&ledger);
  EXPECT_EQ(ledger.peak, 0);
  EXPECT_EQ(engine.peak_transient_bytes(), engine.plan().arena_bytes);
}

TEST(Engine, MemoryLimitIsCheckedBeforeAnythingIsAllocated) {
  const auto backend = backends::make_null_backend();
  engines::TensorStore store(*backend);
  const auto step = tests::small_step(model::Arch::gpt2, {});
  const auto need = engines::memory_need(step, compile::EngineKind::fused);
  try {
    engines::Engine engine(step, compile::EngineKind::fused, store, static_cast<double>(need.total() - 1));
    FAIL();
  } catch (const core::OutOfMemory& error) {
    EXPECT_EQ(error.needed_bytes(), static_cast<double>(need.total()));
    EXPECT_TRUE(store.entries().empty());
  }
  EXPECT_NO_THROW(
      engines::Engine(step, compile::EngineKind::fused, store, static_cast<double>(need.total())));
}

TEST(Engine, PhasesAddUpToTheStep) {
  const auto backend = backends::make_null_backend();
  engines::TensorStore store(*backend);
  engines::Engine engine(tests::small_step(model::Arch::gpt2, {}), compile::EngineKind::fused, store);
  engines::StepTimes times;
  const auto sum = [&] { return times.forward_s + times.backward_s + times.optimizer_s; };
  // A thread that loses its processor between two clocks is wrong by that: once of some times it keeps it.
  for (int attempt = 0; attempt < 50; ++attempt) {
    times = engine.run();
    EXPECT_LE(sum(), times.step_s);
    if (times.step_s - sum() < 1e-3) break;
  }
  EXPECT_NEAR(sum(), times.step_s, 1e-3);
}

}  // namespace
}  // namespace rooflm
