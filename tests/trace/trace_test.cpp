// Observers see every op once, and memory that balances; rows say what the program says.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "backends/cpu/cpu_backend.h"
#include "engines/engine.h"
#include "model/forward.h"
#include "model/parameters.h"
#include "trace/alone_recorder.h"
#include "trace/memory_recorder.h"
#include "trace/op_recorder.h"
#include "trace/program_rows.h"

namespace rooflm {
namespace {

using compile::EngineKind;

/// Bytes of tensors that live across steps, without what aligns them.
std::int64_t persistent_bytes(const program::Program& program) {
  std::int64_t bytes = 0;
  for (const auto& tensor : program.tensors) {
    if (program::is_persistent(tensor.role)) bytes += tensor.bytes();
  }
  return bytes;
}

/// A small model on an engine, ready to step.
class Stepper {
 public:
  explicit Stepper(EngineKind kind)
      : backend_(backends::make_cpu_backend(
            kind == EngineKind::fused ? backends::CpuKernels::fast : backends::CpuKernels::reference, 1)),
        store_(*backend_),
        engine_(program(kind), kind, store_) {
    for (const auto& parameter : model::parameters(config())) {
      store_.write<float>(parameter.name, model::initial_values(parameter, config(), 0));
    }
    engine_.io().write<std::int32_t>("tokens", std::vector<std::int32_t>(2 * 16, 1));
    engine_.io().write<std::int32_t>("targets", std::vector<std::int32_t>(2 * 16, 2));
    engine_.io().write<float>("hyper", std::vector<float>{0, 1, 1, 0});
    engine_.setup();
  }

  static model::ModelConfig config() {
    return model::with_overrides(
        model::preset("gpt2"), {.layers = 2, .heads = 2, .d_model = 32, .d_ff = 64, .vocab = 61, .seq = 16});
  }
  static program::Program program(EngineKind kind) {
    return compile::training_step(model::forward(config(), 2, 16),
                                  {.engine = kind, .attention = compile::default_attention(kind)});
  }
  engines::Engine& engine() { return engine_; }

 private:
  std::unique_ptr<backends::Backend> backend_;
  engines::TensorStore store_;
  engines::Engine engine_;
};

class Trace : public testing::TestWithParam<EngineKind> {};

TEST_P(Trace, OpsThatRunAloneAddUpToLessThanTheirStep) {
  Stepper stepper(GetParam());
  auto& engine = stepper.engine();
  engine.run();
  trace::AloneRecorder recorder(engine.program(), engine.store().backend());
  EXPECT_TRUE(recorder.counters().empty());
  const auto times = engine.run(&recorder);
  std::set<std::int64_t> ops;
  double wall_s = 0;
  for (const record::Counter& counter : recorder.counters()) {
    EXPECT_EQ(counter.source, record::kAloneSource);
    EXPECT_EQ(counter.unit, "s");
    EXPECT_GT(counter.value, 0);
    ops.insert(counter.op.value());
    wall_s += counter.value;
  }
  EXPECT_LE(wall_s, times.step_s);
  for (std::size_t i = 0; i < engine.program().ops.size(); ++i)
    EXPECT_EQ(ops.contains(static_cast<std::int64_t>(i)),
              engine.program().ops[i].phase != program::Phase::setup);
  static_cast<void>(engine.run(&recorder));
  EXPECT_EQ(recorder.counters().size(), ops.size()) << "one median for each op";
}

TEST_P(Trace, EveryOpOfAStepIsOneEvent) {
  Stepper stepper(GetParam());
  auto& engine = stepper.engine();
  trace::OpRecorder recorder(engine.program(), engine.store().backend(), 2);
  recorder.set_step(7);
  const auto times = engine.run(&recorder);
  std::set<std::int64_t> expected;
  for (std::size_t i = 0; i < engine.program().ops.size(); ++i) {
    if (engine.program().ops[i].phase != program::Phase::setup) expected.insert(static_cast<std::int64_t>(i));
  }
  std::set<std::int64_t> seen;
  double wall_s = 0;
  for (const record::Event& event : recorder.events()) {
    EXPECT_EQ(event.step, 7);
    EXPECT_TRUE(seen.insert(event.op).second) << event.op;
    EXPECT_GE(event.device_ns, 0);
    EXPECT_GE(event.wall_ns, event.device_ns);
    wall_s += static_cast<double>(event.wall_ns.value()) * 1e-9;
  }
  EXPECT_EQ(seen, expected);
  // The thread may lose its processor between the clock of the last op and that of the step.
  EXPECT_LE(wall_s, times.step_s + 1);
}

TEST_P(Trace, RowsAddUpToTheProgram) {
  const auto program = Stepper::program(GetParam());
  std::int64_t flop = 0;
  for (const auto& op : program.ops) {
    if (op.phase != program::Phase::setup) flop += program::cost_of(program, op).matmul_flop;
  }
  for (const auto& row : trace::op_rows(program, {})) {
    flop -= row.matmul_flop;
    EXPECT_FALSE(row.scope.empty()) << row.kind;
    EXPECT_EQ(row.kernel, "") << "what is not run has no kernel";
  }
  EXPECT_EQ(flop, 0);
}

TEST_P(Trace, RowsNameTheKernelsThatRun) {
  Stepper stepper(GetParam());
  const bool is_fused = GetParam() == EngineKind::fused;
  std::set<std::string> libraries;
  for (const auto& row : trace::op_rows(stepper.engine().program(), stepper.engine().kernels())) {
    EXPECT_FALSE(row.kernel.empty()) << row.kind;
    EXPECT_FALSE(row.library.empty()) << row.kernel;
    libraries.insert(row.library.substr(0, row.library.find(' ')));
    if (row.kind == "matmul") {
      EXPECT_EQ(row.library.substr(0, row.library.find(' ')), is_fused ? "oneDNN" : "Eigen") << row.kernel;
      EXPECT_NE(row.variant, "") << "its extents";
    }
    if (row.kind == "gelu") {
      EXPECT_EQ(row.kernel, is_fused ? "gelu_forward<fp32>" : "reference::gelu<fp32>");
    }
  }
  EXPECT_EQ(libraries, (std::set<std::string>{"rooflm", is_fused ? "oneDNN" : "Eigen"}));
}

TEST_P(Trace, AllObserversSeeTheSame) {
  Stepper stepper(GetParam());
  auto& engine = stepper.engine();
  trace::OpRecorder first(engine.program(), engine.store().backend(), 1);
  trace::OpRecorder second(engine.program(), engine.store().backend(), 1);
  trace::MemoryRecorder memory(engine.program());
  const std::array<engines::Observer*, 3> all{&first, &memory, &second};
  engine.run(all);
  ASSERT_FALSE(first.events().empty());
  ASSERT_EQ(first.events().size(), second.events().size());
  for (std::size_t i = 0; i < first.events().size(); ++i) {
    EXPECT_EQ(first.events()[i].op, second.events()[i].op);
  }
  EXPECT_EQ(memory.allocations() > 0, GetParam() == EngineKind::eager);
}

TEST(OpRecorder, AReplayedOpHasNoWallTime) {
  Stepper stepper(EngineKind::fused);
  auto& engine = stepper.engine();
  trace::OpRecorder recorder(engine.program(), engine.store().backend(), 1);
  ASSERT_TRUE(recorder.wants_marks());
  recorder.on_step_begin(engine.program());
  const std::array<engines::ReplayedOp, 2> ops{
      {{.op = 3, .start_s = 0, .elapsed_s = 2e-6}, {.op = 4, .start_s = 2e-6, .elapsed_s = 1e-6}}};
  recorder.on_replayed(engine.program(), ops, recorder.origin_ns() + 7);
  recorder.on_step_end(engine.program());
  ASSERT_EQ(recorder.events().size(), 2U);
  EXPECT_EQ(recorder.events()[0].start_ns, 7) << "when the device began";
  EXPECT_EQ(recorder.events()[0].device_ns, 2000);
  EXPECT_EQ(recorder.events()[1].device_ns, 1000);
  EXPECT_EQ(recorder.events()[1].start_ns - recorder.events()[0].start_ns, 2000);
  for (const record::Event& event : recorder.events()) EXPECT_FALSE(event.wall_ns.has_value());
}

TEST_P(Trace, PlannedMemoryBalances) {
  const auto program = Stepper::program(GetParam());
  const auto plan = passes::plan_memory(program);
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (const auto& event : trace::planned_memory_events(program, plan)) {
    live += event.bytes;
    EXPECT_EQ(event.live_bytes, live);
    peak = std::max(peak, live);
  }
  EXPECT_EQ(live, persistent_bytes(program));
  EXPECT_EQ(peak - live, plan.peak_live_bytes);
}

/// Tensors that share memory are never alive at once: the roles of what is alive add up to what is alive.
TEST_P(Trace, SharedMemoryHasOneOwnerAtATime) {
  const auto program = Stepper::program(GetParam());
  const auto plan = passes::plan_memory(program);
  std::map<int, std::int64_t> owner;  // of each storage
  std::size_t shared = 0;
  for (const auto& event : trace::planned_memory_events(program, plan)) {
    const int storage = plan.storage_of[static_cast<std::size_t>(event.tensor.value())];
    if (storage < 0) continue;
    if (event.bytes > 0) {
      EXPECT_TRUE(owner.emplace(storage, event.tensor.value()).second) << "tensor " << *event.tensor;
    } else {
      EXPECT_EQ(owner.at(storage), event.tensor);
      owner.erase(storage);
    }
    shared += plan.storages[static_cast<std::size_t>(storage)].tensors.size() > 1 ? 1 : 0;
  }
  EXPECT_TRUE(owner.empty());
  EXPECT_GT(shared, 0U);
}

INSTANTIATE_TEST_SUITE_P(Engines, Trace, testing::Values(EngineKind::eager, EngineKind::fused),
                         [](const auto& kind) { return std::string(compile::name_of(kind.param)); });

TEST(MemoryRecorder, SeesWhatEagerAllocates) {
  Stepper stepper(EngineKind::eager);
  auto& engine = stepper.engine();
  trace::MemoryRecorder memory(engine.program());
  engine.run(&memory);
  const auto first_step = memory.events();
  std::int64_t live = 0;
  std::int64_t peak = 0;
  std::map<std::int64_t, std::int64_t> alive;
  std::int64_t op = -1;
  for (const auto& event : first_step) {
    live += event.bytes;
    alive[event.tensor.value()] += event.bytes;
    EXPECT_EQ(event.live_bytes, live);
    EXPECT_GE(event.op, op) << "events are in the order of ops";
    op = event.op.value();
    peak = std::max(peak, live);
  }
  EXPECT_EQ(live, persistent_bytes(engine.program())) << "all transient memory is freed";
  EXPECT_EQ(peak - live, engine.plan().unshared_peak_bytes);
  EXPECT_EQ(memory.allocations(), std::count_if(first_step.begin(), first_step.end(), [](const auto& event) {
              return event.op >= 0 && event.bytes > 0;
            }));
  engine.run(&memory);
  EXPECT_EQ(memory.events().size(), first_step.size()) << "the next step starts anew";
}

}  // namespace
}  // namespace rooflm
