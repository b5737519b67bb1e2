// Running a program on a backend: when ops run and where their tensors live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "compile/passes/plan_memory.h"
#include "compile/recipe.h"
#include "engines/observer.h"
#include "engines/side_thread.h"
#include "engines/tensor_store.h"
#include "program/program.h"

namespace rooflm::engines {

/// Time of one run by phase, in seconds. Phases may interleave (the chunked loss); each op's time goes to its
/// own phase, taken where the phase changes: on a device its own time, so that with `wait_s` they add up to a
/// little less than `step_s`, the wall time from the first submission until the device is done. Where a
/// recorded step is replayed, what runs beside the backward pass is in its time; `optimizer_s` is what comes
/// after.
struct StepTimes {
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  double step_s = 0;
  /// From the first submission until a device of its own clock began, in steps that are submitted op by op: a
  /// GPU that other programs use, too, serves each for about 2 ms in turn. 0 where it is not known.
  double wait_s = 0;
  /// Of collectives, in which the host did nothing else: where kernels return when they are done. 0
  /// elsewhere, and of steps of one rank.
  double exposed_s = 0;
  double submit_s = 0;  ///< until everything is submitted: what the host is kept busy
  /// Whether the device waited for that (Start::when_submitted): then submit_s comes before step_s, not
  /// within it.
  bool was_held = false;
  std::int64_t begin_ns = 0;  ///< of step_s, by std::chrono::steady_clock
};

/// When the device begins a step that is replayed: with what was submitted first, or when all was. The second
/// keeps the host's time to submit out of the device's, so that what slows the host down does not slow the
/// step.
enum class Start : std::uint8_t { at_once, when_submitted };

/// Whether ops of other lanes run beside those of compute (program::Lane), or all in the order of the
/// program. The numbers are the same, bit for bit. A GPU runs lanes beside each other in replays, a processor
/// the lane of communication, in a thread of its own.
enum class Order : std::uint8_t { lanes, program };

/// What a program needs, before anything is allocated.
struct MemoryNeed {
  std::int64_t persistent_bytes = 0;  ///< inputs, weights, optimizer state, results
  std::int64_t transient_bytes = 0;   ///< fused: the arena; eager: most bytes alive at once
  [[nodiscard]] std::int64_t total() const { return persistent_bytes + transient_bytes; }
};
MemoryNeed memory_need(const program::Program& program, compile::EngineKind kind);

/// One program, ready to run again and again. Kernels are made and (fused) memory is allocated in the
/// constructor; a fused engine allocates nothing in `run`.
class Engine {
 public:
  /// Binds weights and optimizer state in `store`; inputs and results are the engine's own, see `io`. Throws
  /// core::OutOfMemory, naming what it needs, when that is more than `memory_limit_bytes` (0: what the
  /// backend has free) plus what the store already holds; core::Unavailable when the backend lacks a kernel.
  /// `caches` has the keys and values that engines share which read the same texts; nullptr: this engine has
  /// its own. It outlives the engine, as `store` does.
  Engine(program::Program program, compile::EngineKind kind, TensorStore& store,
         double memory_limit_bytes = 0, TensorStore* caches = nullptr);

  /// Runs the setup ops; call it after weights were written.
  void setup();
  /// Runs all ops but setup ones, waits for the device, returns the times. The first step is submitted op by
  /// op, so that a device can name the op that fails. From the second on a fused engine records the step,
  /// where the device can, and replays it, unless an observer wants to see each op submitted
  /// (Observer::wants_marks).
  /// `start` is for replays without observers: those with marks of ops are held until the first of them are
  /// submitted. Other steps, and devices that cannot be held, begin at once.
  StepTimes run(std::span<Observer* const> observers = {}, Start start = Start::at_once);
  /// With one observer; nullptr: none.
  StepTimes run(Observer* observer, Start start = Start::at_once) {
    return run({&observer, std::size_t{observer != nullptr ? 1U : 0U}}, start);
  }

  /// Of the steps from here on; at first Order::lanes. What was recorded in another order is kept.
  void set_order(Order order) { order_ = order; }
  [[nodiscard]] Order order() const { return order_; }
  /// As `set_order`: how the device carries out collectives of data-parallel ranks; at first
  /// CollectiveWay::usual. One that the backend does not have (Backend::collective_ways) is
  /// std::logic_error.
  void set_way(backends::CollectiveWay way);
  [[nodiscard]] backends::CollectiveWay way() const { return way_; }
  /// Whether kernels return when they are done, so that what runs beside others needs a thread.
  [[nodiscard]] bool is_on_host() const { return !stopwatch_->is_on_device(); }
  /// Whether the two orders differ: on a device that records steps, only those that are recorded.
  [[nodiscard]] bool can_run_beside() const { return is_on_host() || kind_ == compile::EngineKind::fused; }
  /// Whether the program has ops that set_order moves.
  [[nodiscard]] bool has_collectives() const { return has_collectives_; }
  /// Forgets what was recorded in another order or way than those that are set.
  void forget_others();

  [[nodiscard]] const program::Program& program() const { return program_; }
  [[nodiscard]] const passes::MemoryPlan& plan() const { return plan_; }
  /// What runs program().ops[op].
  [[nodiscard]] const backends::KernelInfo& kernel(std::size_t op) const { return steps_.at(op).kernel.info; }
  /// The same of all ops.
  [[nodiscard]] std::vector<backends::KernelInfo> kernels() const;
  /// The library that runs the first op of this kind; "" when there is none.
  [[nodiscard]] std::string library_of(const program::OpDef& op) const;
  /// The step as it is replayed without observers, or with the marks that observers read; nullptr when it has
  /// not been recorded.
  [[nodiscard]] const backends::Recording* recording(bool with_marks) const {
    if (with_marks) return marked_recording_.get();
    const auto found = recordings_.find({order_, way_});
    return found == recordings_.end() ? nullptr : found->second.get();
  }
  /// Weights and optimizer state.
  [[nodiscard]] TensorStore& store() const { return *store_; }
  /// Inputs ("tokens", "targets", "hyper") to write before a run, results ("loss", "grad_norm", "logits") to
  /// read after, and caches that are its own.
  [[nodiscard]] TensorStore& io() { return io_; }
  /// Largest transient memory so far: the arena, or the most bytes alive at once.
  [[nodiscard]] std::int64_t peak_transient_bytes() const { return peak_transient_bytes_; }

 private:
  struct Step {
    backends::Kernel kernel;
    std::vector<void*> in, out;
    std::vector<program::TensorId> frees;  ///< eager: tensors whose last use this is
  };
  /// Where tensors of that role are that persist.
  [[nodiscard]] TensorStore& store_of(program::Role role);
  void check_memory(double limit_bytes);
  void find_shared();
  [[nodiscard]] std::uint64_t shared_layout() const;
  [[nodiscard]] std::int64_t received_bytes() const;
  void bind_tensors();
  void make_steps();
  void resolve(std::size_t index);
  void find_phases();
  using Observers = std::span<Observer* const>;
  backends::Recording* recording_for(Observers observers);
  StepTimes run_once(backends::Recording* recording, Observers observers, Start start);
  std::optional<double> agree_on_time();
  [[nodiscard]] std::size_t agreed_mark() const { return phases_.size() + 1; }
  /// Whether a device may run the op beside those that follow.
  static bool runs_beside(const program::Op& op) { return op.lane != program::Lane::compute; }
  /// What a host runs in a thread of its own: its cores are busy with the rest.
  static bool is_of_side_thread(const program::Op& op);
  [[nodiscard]] bool runs_side_thread(Observers observers) const;
  [[nodiscard]] const std::vector<program::Phase>& phases_of(const backends::Recording* recording,
                                                             Observers observers) const;
  void submit(Observers observers);
  void submit_beside(Observers observers);
  template <class Wait>
  void wait_beside(Observers observers, Wait wait);
  void submit_recorded(bool with_marks, const std::function<void(std::size_t)>& submitted);
  [[nodiscard]] std::vector<ReplayedOp> replayed_ops() const;
  void prepare(std::size_t index, Observers observers);
  void run_op(std::size_t index, Observers observers);
  void free_after(std::size_t index, Observers observers);

  program::Program program_;
  compile::EngineKind kind_;
  TensorStore* store_;
  TensorStore* caches_;
  TensorStore io_;
  passes::MemoryPlan plan_;
  backends::Allocation arena_;
  std::vector<backends::Allocation> on_demand_;  ///< eager: one per tensor while it is alive
  std::vector<void*> address_;                   ///< by TensorId
  std::vector<Step> steps_;
  /// The phases in the order in which they begin, one mark of the stopwatch between each two: those of the
  /// program, and those of a recording, in which ops that run beside others begin no phase.
  std::vector<program::Phase> phases_, recorded_phases_;
  std::unique_ptr<backends::Stopwatch> stopwatch_;  ///< and a last mark before the step (agreed_mark)
  std::unique_ptr<backends::Stopwatch> op_ends_;    ///< of replays: the beginning, and the end of each op
  std::map<std::pair<Order, backends::CollectiveWay>, std::unique_ptr<backends::Recording>> recordings_;
  std::unique_ptr<backends::Recording> marked_recording_;
  Order order_ = Order::lanes;
  backends::CollectiveWay way_ = backends::CollectiveWay::usual;
  std::vector<bool> is_shared_;  ///< by TensorId: collectives of data-parallel ranks use its memory
  bool has_collectives_ = false;
  double exposed_s_ = 0;  ///< of the step that runs
  bool has_run_ = false;
  std::int64_t live_bytes_ = 0;
  std::int64_t peak_transient_bytes_ = 0;
  std::unique_ptr<SideThread> side_;  ///< last: it ends before what its ops work on
};

}  // namespace rooflm::engines
