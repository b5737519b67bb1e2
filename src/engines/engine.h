// Runs a program on a backend: decides when ops run and where their tensors live.
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

/// Wall and device time of one step by phase, in seconds. Phases may interleave (the chunked loss does), so
/// the stopwatch is read wherever the phase changes and each op's time goes to its own phase. On a device
/// these are device times: together with `wait_s` they sum to slightly less than `step_s`, the wall time from
/// the first submission until the device is idle. In a replayed step the time of the backward pass includes
/// what overlaps it; `optimizer_s` is only what runs after it.
struct StepTimes {
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  double step_s = 0;
  /// Time from the first submission until the device began, for steps submitted op by op on a device with its
  /// own clock. A GPU shared with other processes serves each in turn for about 2 ms. 0 where unknown.
  double wait_s = 0;
  /// Exposed communication: time in collectives during which the host did nothing else. Measured only where
  /// kernels are synchronous (CPU) and the step has several ranks; otherwise 0.
  double exposed_s = 0;
  double submit_s = 0;  ///< until everything is submitted: the time the host is busy
  /// Whether the device was held until everything was submitted (Start::when_submitted). Then submit_s comes
  /// before step_s and is not part of it.
  bool was_held = false;
  std::int64_t begin_ns = 0;  ///< start of step_s, by std::chrono::steady_clock
};

/// When the device may begin a replayed step: with the first submission, or after the last one.
/// when_submitted keeps the host's submission time out of the device's, so a slow host does not slow the
/// step.
enum class Start : std::uint8_t { at_once, when_submitted };

/// Whether ops of other lanes (program::Lane) overlap those of `compute`, or all ops run in program order.
/// The results are bit-identical. A GPU overlaps lanes in replays only. A CPU overlaps only the communication
/// lane, on a side thread.
enum class Order : std::uint8_t { lanes, program };

/// Memory that a program needs, known before anything is allocated.
struct MemoryNeed {
  std::int64_t persistent_bytes = 0;  ///< inputs, weights, optimizer state, results
  std::int64_t transient_bytes = 0;   ///< fused: the arena; eager: peak bytes alive at once
  [[nodiscard]] std::int64_t total() const { return persistent_bytes + transient_bytes; }
};
MemoryNeed memory_need(const program::Program& program, compile::EngineKind kind);

/// Thrown by Engine::run where its check said so: the step is unfinished, and the engine can only be
/// destroyed.
struct StepLeft {};

/// One program, ready to run repeatedly. The constructor makes the kernels and, for the fused engine,
/// allocates all memory: `run` of a fused engine allocates nothing.
class Engine {
 public:
  /// Binds weights and optimizer state in `store`; inputs and results belong to the engine, see `io`. Throws
  /// core::OutOfMemory, with the bytes needed, if they exceed `memory_limit_bytes` (0: what the backend has
  /// free) plus what the store already holds. Throws core::Unavailable if the backend lacks a kernel.
  /// `caches` holds the keys and values shared by engines that serve the same texts; nullptr: this engine has
  /// its own. `store` and `caches` must outlive the engine.
  Engine(program::Program program, compile::EngineKind kind, TensorStore& store,
         double memory_limit_bytes = 0, TensorStore* caches = nullptr);

  /// Runs the setup ops. Call it after the weights are written.
  void setup();
  /// Runs all ops except setup ops, waits for the device and returns the times. The first step is submitted
  /// op by op, so the device can name an op that fails. From the second step on a fused engine records the
  /// step, if the device can, and replays it, unless an observer must see each submission
  /// (Observer::wants_marks).
  ///
  /// `start` applies to replays without observers. Replays with a timestamp per op are held until the first
  /// of them are submitted. All other steps, and devices that cannot be held, begin at once.
  StepTimes run(std::span<Observer* const> observers = {}, Start start = Start::at_once);
  /// The same with one observer; nullptr: none.
  StepTimes run(Observer* observer, Start start = Start::at_once) {
    return run({&observer, std::size_t{observer != nullptr ? 1U : 0U}}, start);
  }

  /// Is asked before each op of a step, on devices whose kernels are synchronous; false: the step is left
  /// (StepLeft).
  void set_check(std::function<bool()> goes_on) { goes_on_ = std::move(goes_on); }

  /// Order of the following steps; initially Order::lanes. Recordings made in the other order are kept.
  void set_order(Order order) { order_ = order; }
  [[nodiscard]] Order order() const { return order_; }
  /// How the device runs collectives of data-parallel ranks in the following steps; initially
  /// CollectiveWay::usual. Throws std::logic_error if the backend does not have it
  /// (Backend::collective_ways).
  void set_way(backends::CollectiveWay way);
  [[nodiscard]] backends::CollectiveWay way() const { return way_; }
  /// Whether kernels are synchronous, so overlap needs a thread.
  [[nodiscard]] bool is_on_host() const { return !stopwatch_->is_on_device(); }
  /// Whether the two orders differ. On a device that records steps they differ only in recorded steps.
  [[nodiscard]] bool can_run_beside() const { return is_on_host() || kind_ == compile::EngineKind::fused; }
  /// Whether the program has ops whose order set_order changes.
  [[nodiscard]] bool has_collectives() const { return has_collectives_; }
  /// Drops recordings made in another order or way than the current ones.
  void forget_others();

  [[nodiscard]] const program::Program& program() const { return program_; }
  [[nodiscard]] const passes::MemoryPlan& plan() const { return plan_; }
  /// The kernel that runs program().ops[op].
  [[nodiscard]] const backends::KernelInfo& kernel(std::size_t op) const { return steps_.at(op).kernel.info; }
  /// The kernels of all ops, in program order.
  [[nodiscard]] std::vector<backends::KernelInfo> kernels() const;
  /// The library that runs the first op of this kind; "" if there is none.
  [[nodiscard]] std::string library_of(const program::OpDef& op) const;
  /// The recording that is replayed without observers, or the one with a timestamp per op. nullptr if the
  /// step has not been recorded.
  [[nodiscard]] const backends::Recording* recording(bool with_marks) const {
    if (with_marks) return marked_recording_.get();
    const auto found = recordings_.find({order_, way_});
    return found == recordings_.end() ? nullptr : found->second.get();
  }
  [[nodiscard]] TensorStore& store() const { return *store_; }
  /// The engine's own tensors: inputs to write before a run ("tokens", "targets", "hyper"), results to read
  /// after it ("loss", "grad_norm", "logits"), and its own caches.
  [[nodiscard]] TensorStore& io() { return io_; }
  /// Peak transient memory so far: the arena, or the most bytes alive at once.
  [[nodiscard]] std::int64_t peak_transient_bytes() const { return peak_transient_bytes_; }

 private:
  struct Step {
    backends::Kernel kernel;
    std::vector<void*> in, out;
    std::vector<program::TensorId> frees;  ///< eager: tensors whose last use is this op
  };
  /// The store of persistent tensors of that role.
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
  [[nodiscard]] bool writes_weights() const;
  backends::Recording* recording_for(Observers observers);
  StepTimes run_once(backends::Recording* recording, Observers observers, Start start);
  std::optional<double> agree_on_time();
  [[nodiscard]] std::size_t agreed_mark() const { return phases_.size() + 1; }
  /// Whether a device may overlap the op with those that follow.
  static bool runs_beside(const program::Op& op) { return op.lane != program::Lane::compute; }
  /// Whether the op runs on the side thread when kernels are synchronous (collectives: the cores are busy
  /// with the rest).
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
  void require_to_go_on() const {
    if (goes_on_ && is_on_host() && !goes_on_()) throw StepLeft{};
  }
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
  std::vector<backends::Allocation> on_demand_;  ///< eager: one per live tensor
  std::vector<void*> address_;                   ///< by TensorId
  std::vector<Step> steps_;
  /// The phases in the order in which they begin, with one stopwatch mark between each two: those of the
  /// program, those of a recording, in which ops on other lanes begin no phase, and those that the submitting
  /// thread runs itself beside a side thread.
  std::vector<program::Phase> phases_, recorded_phases_, own_phases_;
  /// One mark per phase change, and one before the step (agreed_mark).
  std::unique_ptr<backends::Stopwatch> stopwatch_;
  std::unique_ptr<backends::Stopwatch> op_ends_;  ///< replays: the start of the step and the end of each op
  std::map<std::pair<Order, backends::CollectiveWay>, std::unique_ptr<backends::Recording>> recordings_;
  std::unique_ptr<backends::Recording> marked_recording_;
  Order order_ = Order::lanes;
  backends::CollectiveWay way_ = backends::CollectiveWay::usual;
  std::vector<bool> is_shared_;  ///< by TensorId: used by collectives of data-parallel ranks
  bool has_collectives_ = false;
  double exposed_s_ = 0;  ///< of the current step
  bool has_run_ = false;
  std::function<bool()> goes_on_;
  std::int64_t live_bytes_ = 0;
  std::int64_t peak_transient_bytes_ = 0;
  std::unique_ptr<SideThread> side_;  ///< last member: it must end before the tensors its ops use
};

}  // namespace rooflm::engines
