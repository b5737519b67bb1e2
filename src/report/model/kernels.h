// Kernels of a run: sums and statistics over their executions, for views, page and verify.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// The ops of one phase that run the same kernel, over all observed steps.
struct Kernel {
  std::string phase, name, op_class, library;
  std::string variant;         ///< "5 variants" where its ops differ
  std::int64_t instances = 0;  ///< executions of its ops: whole events
  std::int64_t launches = 0;   ///< kernels that these executions launch, by the program
  double total_s = 0;          ///< device time of all executions
  double mean_s = 0, median_s = 0, min_s = 0, max_s = 0, std_s = 0;  ///< of one execution
  std::optional<double> time_share{};                                ///< of total_s of all kernels
};

/// Name of the kernel as summaries show it; the kind of op where none is recorded.
std::string kernel_name(const record::Op& op);

/// Kernels that were observed, largest total first.
std::vector<Kernel> kernels_of(const RunData& run);

}  // namespace rooflm::report
