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

/// Device times are read from the backend's own stopwatch after the step, so that a device that runs work
/// later is not waited for; wall times are those of the host, dispatch included. In a replayed step the host
/// submits nothing op by op, so that an op has no wall time, and its device time reaches from the end of the
/// op before it to its own end: the gaps between kernels are in it. An op that ran beside others on the host
/// has no wall time either. Keeps the events of the steps that it
/// saw; memory for `expected_steps` is taken before the first one.
class OpRecorder : public engines::Observer {
 public:
  OpRecorder(const program::Program& program, const backends::Backend& backend, std::size_t expected_steps);

  /// Number of the step that runs next, as in record::Sample::step.
  void set_step(std::int64_t step) { step_ = step; }
  /// Nanoseconds count from the recorder's construction. Where kernels run after they were submitted,
  /// `start_ns` is when they were.
  [[nodiscard]] const std::vector<record::Event>& events() const { return events_; }
  /// Of that construction, on the monotonic clock.
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
  std::size_t first_event_ = 0;                     ///< of the step that runs
  std::size_t beside_event_ = 0;                    ///< the first of those that ran beside, after all others
  std::int64_t origin_ns_ = 0;
  std::int64_t step_ = 0;
  std::int64_t begin_ns_ = 0;     ///< of the op that runs
  std::int64_t last_end_ns_ = 0;  ///< of the op before it, or the start of the step
};

}  // namespace rooflm::trace
