// Times every op of a step by the host's clock, each in isolation: submitted to an idle device, and waited
// for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/backend.h"
#include "engines/observer.h"
#include "record/rows.h"

namespace rooflm::trace {

/// An op's wall time consists of its launches, its kernels and the wait for them, as in a program that
/// synchronizes around each op. Such a step is submitted op by op and slowed down by the waits, so its times
/// say nothing about other steps.
class AloneRecorder : public engines::Observer {
 public:
  AloneRecorder(const program::Program& program, backends::Backend& backend)
      : backend_(&backend), wall_s_(program.ops.size()) {}

  void on_op_begin(const program::Program& program, std::size_t index) override;
  void on_op_end(const program::Program& program, std::size_t index) override;

  /// The median over the observed steps of each op that ran: counters kAloneWall of source kAloneSource.
  [[nodiscard]] std::vector<record::Counter> counters() const;

 private:
  backends::Backend* backend_;
  std::vector<std::vector<double>> wall_s_;  ///< by op, then by step
  double begin_s_ = 0;
};

}  // namespace rooflm::trace
