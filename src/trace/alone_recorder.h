// Times every op of a step by the host's clock, each alone: submitted when the device has nothing to do, and
// waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "engines/observer.h"
#include "record/rows.h"

namespace rooflm::trace {

/// The wall time of an op is that of its launches, its kernels and of waiting for them, as a program takes it
/// that synchronizes around each op. A step is submitted op by op then, and slower by all of these waits: its
/// times say nothing about steps that run otherwise.
class AloneRecorder : public engines::Observer {
 public:
  AloneRecorder(const program::Program& program, backends::Backend& backend)
      : backend_(&backend), wall_s_(program.ops.size()) {}

  void on_op_begin(const program::Program& program, std::size_t index) override;
  void on_op_end(const program::Program& program, std::size_t index) override;

  /// Of each op that ran, the median over the steps that were seen: counters kAloneWall of source
  /// kAloneSource.
  [[nodiscard]] std::vector<record::Counter> counters() const;

 private:
  backends::Backend* backend_;
  std::vector<std::vector<double>> wall_s_;  ///< by op, step by step
  double begin_s_ = 0;
};

}  // namespace rooflm::trace
