// All that a GPU can do at best: measured once, kept for the commands that follow.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/devices.h"
#include "record/rows.h"

namespace rooflm::lab {

struct GpuCeilingRequest {
  std::string device;                ///< "cuda:0"
  std::vector<ComputeDtype> dtypes;  ///< of the matrix products
  bool remeasure = false;            ///< even what is kept
  bool only_products = false;        ///< neither instruction peaks nor loops over memory
  /// For each row, at least; what was measured for another time than the usual one is neither taken from the
  /// file nor kept in it.
  std::optional<double> seconds;
};

/// Matrix products per dtype with the kernels of the fused engine, the instruction peak beside them, and
/// loops over device memory and the second-level cache (backends/cuda/peaks.h): what roofs are made of. From
/// the file of measure::ceiling_file as far as it has them, measured otherwise, in less than ten seconds, and
/// then kept there. Says on standard error what it measures. Throws core::Unavailable, core::OutOfMemory.
std::vector<record::Ceiling> gpu_ceilings(const GpuCeilingRequest& request);

/// What is kept of them, by whatever dtypes; nothing is measured. Empty without that GPU. `name` is what it
/// calls itself: another GPU's are not taken for its own.
std::vector<record::Ceiling> kept_gpu_ceilings(const std::string& device, const std::string& name);

/// Why there is no instruction peak of the dtype on this GPU; "" when there is one.
std::string why_no_instruction_peak(const std::string& device, const std::string& dtype);

/// What brings work and data to a GPU: launches, nodes of graphs, copies from and to the host and other GPUs.
/// Latencies are in s. Never kept.
std::vector<record::Ceiling> gpu_links(const std::string& device, std::optional<double> seconds);

}  // namespace rooflm::lab
