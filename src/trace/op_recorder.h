// Times every op of a step, between two marks of the device's stopwatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "engines/observer.h"
#include "record/rows.h"

namespace rooflm::trace {

/// Device times come from the backend's stopwatch after the step, so an asynchronous device is not waited
/// for. Wall times are the host's, including dispatch. In a replayed step the host submits nothing op by op:
/// ops have no wall time, and their device time runs from the end of the previous op to their own end,
/// including gaps between kernels. Ops that overlapped others on the host have no wall time either. Keeps the
/// events of all observed steps; memory for `expected_steps` is reserved before the first one.
class OpRecorder : public engines::Observer {
 public:
  OpRecorder(const program::Program& program, const backends::Backend& backend, std::size_t expected_steps);

  /// Number of the next step, as in record::Sample::step.
  void set_step(std::int64_t step) { step_ = step; }
  /// Forgets the events of steps from that number on: one that was left in its middle.
  void forget_from(std::int64_t step) {
    std::erase_if(events_, [step](const record::Event& event) { return event.step >= step; });
  }
  /// Times are nanoseconds since the recorder's construction. On asynchronous devices `start_ns` is the time
  /// of submission.
  [[nodiscard]] const std::vector<record::Event>& events() const { return events_; }
  /// The time of construction, on the monotonic clock.
  [[nodiscard]] std::int64_t origin_ns() const { return origin_ns_; }

  void on_step_begin(const program::Program& program) override;
  void on_step_end(const program::Program& program) override;
  void on_op_begin(const program::Program& program, std::size_t index) override;
  void on_op_end(const program::Program& program, std::size_t index) override;
  [[nodiscard]] bool wants_marks() const override { return true; }
  [[nodiscard]] bool sees_lanes() const override { return true; }
  void on_waited() override;
  void on_beside(const program::Program& program, std::span<const engines::OpBeside> ops) override;
  void on_replayed(const program::Program& program, std::span<const engines::ReplayedOp> ops,
                   std::int64_t begin_ns) override;

 private:
  std::vector<record::Event> events_;
  std::unique_ptr<backends::Stopwatch> stopwatch_;  ///< two marks per op
  std::size_t first_event_ = 0;                     ///< first event of the current step
  std::size_t beside_event_ = 0;                    ///< first event of overlapped ops, after all others
  std::int64_t origin_ns_ = 0;
  std::int64_t step_ = 0;
  std::int64_t begin_ns_ = 0;     ///< start of the current op
  std::int64_t last_end_ns_ = 0;  ///< end of the previous op, or the start of the step
};

}  // namespace rooflm::trace
