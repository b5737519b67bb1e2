// The NVIDIA GPUs of this machine, or why there are none.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rooflm::backends::cuda {

/// One GPU on which our own code has run.
struct CudaDevice {
  int index = 0;          ///< N of `--device cuda:N`
  std::string name;       ///< as the driver says it, "NVIDIA H200"
  int sm_count = 0;       ///< streaming multiprocessors
  int compute_major = 0;  ///< compute capability, 9.0 for Hopper
  int compute_minor = 0;
  double total_bytes = 0;   ///< device memory
  double free_bytes = 0;    ///< of it, not allocated by anybody at the time of asking
  int driver_version = 0;   ///< highest CUDA version that the driver supports: 13000 for 13.0
  int runtime_version = 0;  ///< CUDA runtime that rooflm is linked with, likewise
};

/// What was found.
struct CudaStatus {
  std::vector<CudaDevice> devices;
  std::string reason;  ///< one line: why a device, or every device, cannot be used; empty when all can
};

/// Asks the driver for its GPUs, or for one alone, and runs a small kernel on each, so that a device that is
/// listed is one that executes what this binary was compiled for. Costs up to a second per GPU and some
/// hundred MB of its memory (it creates their contexts), waits for them, and leaves the last one current.
/// Never throws for an absent driver or device: that is what `reason` is for.
[[nodiscard]] CudaStatus query_cuda(std::optional<int> only = {});

/// Whether this build has CUDA.
[[nodiscard]] bool is_compiled_in();
/// Whether this build and this machine may have a GPU: a look at the driver's files, without loading it.
[[nodiscard]] bool may_be_here();

}  // namespace rooflm::backends::cuda
