// Operators of a program that is not ours: what each took on the host, alone and with all that it called, and
// what it started on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// All calls of one operator, or of one with the same inputs or at the same place of the program.
struct OperatorSum {
  std::string name{}, detail{};  ///< detail: inputs or stack
  std::size_t calls = 0;
  std::int64_t self_ns = 0;    ///< without the operators and calls of the runtime within it
  std::int64_t total_ns = 0;   ///< of calls that are not within another one of the same row
  std::int64_t device_ns = 0;  ///< of what it and the operators within it started on the device, each once
  std::int64_t device_self_ns = 0;
};

struct OperatorSums {
  std::vector<OperatorSum> by_name{}, by_inputs{}, by_stack{};  ///< largest self time first
  bool has_device = false;  ///< work of the device whose operator is known
};

/// Of all activities of kind "op" on threads of a host; by inputs and by stack only where the trace has them.
OperatorSums operator_sums(const RunData& run);

}  // namespace rooflm::report
