// Times every op of a step, between two marks of the device's stopwatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "engines/observer.h"
#include "record/rows.h"

namespace rooflm::trace {

/// Device times are read from the backend's own stopwatch after the step, so that a device that only takes
/// orders is not made to wait; wall times are those of the host, dispatch included. In a step that is
/// replayed there is one mark per op, taken beside the work: both times of an op reach from the end of the op
/// before to its own end, so that what lies between two kernels is in them. Keeps the events of the steps it
/// saw; memory for `expected_steps` is taken before the first one. Of use to one engine.
class OpRecorder : public engines::Observer {
 public:
  OpRecorder(const program::Program& program, const backends::Backend& backend, std::size_t expected_steps);

  /// Number of the step that runs next, as in record::Sample::step.
  void set_step(std::int64_t step) { step_ = step; }
  /// Nanoseconds count from the recorder's construction. Where kernels run after they were submitted,
  /// `start_ns` is when they were.
  [[nodiscard]] const std::vector<record::Event>& events() const { return events_; }

  void on_step_begin(const program::Program& program) override;
  void on_step_end(const program::Program& program) override;
  void on_op_begin(const program::Program& program, std::size_t index) override;
  void on_op_end(const program::Program& program, std::size_t index) override;
  std::unique_ptr<backends::Recording>* recording() override { return &recording_; }
  void on_record_begin(const program::Program& program) override;
  void on_op_recorded(const program::Program& program, std::size_t index) override;
  void on_replayed(const program::Program& program) override;
  void on_allocate(const program::Program& /*program*/, program::TensorId /*id*/,
                   std::int64_t /*live_bytes*/) override {}
  void on_free(const program::Program& /*program*/, program::TensorId /*id*/,
               std::int64_t /*live_bytes*/) override {}

 private:
  std::vector<record::Event> events_;
  std::unique_ptr<backends::Stopwatch> stopwatch_;  ///< two marks per op
  std::unique_ptr<backends::Stopwatch> ends_;       ///< of replays: the beginning, and the end of each op
  std::unique_ptr<backends::Recording> recording_;
  std::size_t first_event_ = 0;  ///< of the step that runs
  std::int64_t origin_ns_ = 0;
  std::int64_t step_ = 0;
  std::int64_t begin_ns_ = 0;     ///< of the op that runs
  std::int64_t last_end_ns_ = 0;  ///< of the op before it, or the start of the step
};

}  // namespace rooflm::trace
