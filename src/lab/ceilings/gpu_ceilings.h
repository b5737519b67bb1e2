// The ceilings of a GPU: measured once, cached for later commands.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/devices.h"
#include "record/rows.h"

namespace rooflm::lab {

struct GpuCeilingRequest {
  std::string device;                ///< "cuda:0"
  std::vector<ComputeDtype> dtypes;  ///< of the matmuls
  bool remeasure = false;            ///< even what is kept
  bool only_products = false;        ///< neither instruction peaks nor loops over memory
  /// For each row, at least; with another time than the default, the cache is neither read nor written.
  std::optional<double> seconds;
};

/// Matmuls per dtype with the kernels of the fused engine, the instruction peak beside them, and
/// loops over device memory and the second-level cache (backends/cuda/peaks.h): what roofs are made of. From
/// the file of measure::ceiling_file as far as it has them, measured otherwise, in less than ten seconds, and
/// then kept there. Says on standard error what it measures. Throws core::Unavailable, core::OutOfMemory.
std::vector<record::Ceiling> gpu_ceilings(const GpuCeilingRequest& request);

/// The cached ones, of any dtype; nothing is measured. Empty without that GPU. `name` is the GPU's own name,
/// so that ceilings of another GPU are not used.
std::vector<record::Ceiling> kept_gpu_ceilings(const std::string& device, const std::string& name);

/// Why there is no instruction peak of the dtype on this GPU; "" when there is one.
std::string why_no_instruction_peak(const std::string& device, const std::string& dtype);

/// Launches, graph nodes, and copies from and to the host and other GPUs. Latencies are in s. Never cached.
std::vector<record::Ceiling> gpu_links(const std::string& device, std::optional<double> seconds);

}  // namespace rooflm::lab
