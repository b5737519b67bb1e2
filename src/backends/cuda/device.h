// The NVIDIA GPUs of this machine, or why there are none.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rooflm::backends::cuda {

/// A GPU of this machine.
struct CudaDevice {
  int index = 0;          ///< N of `--device cuda:N`
  std::string name;       ///< as the driver reports it, "NVIDIA H200"
  int sm_count = 0;       ///< streaming multiprocessors
  int compute_major = 0;  ///< compute capability, 9.0 for Hopper
  int compute_minor = 0;
  double total_bytes = 0;   ///< device memory
  double free_bytes = 0;    ///< device memory that nobody had allocated at the time of the query
  int driver_version = 0;   ///< highest CUDA version that the driver supports: 13000 for 13.0
  int runtime_version = 0;  ///< CUDA runtime that rooflm is linked with, in the same form
};

/// What was found.
struct CudaStatus {
  std::vector<CudaDevice> devices;
  std::string reason;  ///< one line: why a device, or every device, is unusable; empty if all work
};

/// Queries the driver for its GPUs, or for GPU `only`, and runs a small kernel on each, so every listed
/// device can run this binary's code. Takes up to a second and some hundred MB of memory per GPU (it creates
/// their contexts), waits for them, and leaves the last one current. Never throws for an absent driver or
/// device: see `reason`.
[[nodiscard]] CudaStatus query_cuda(std::optional<int> only = {});
/// The GPUs that the driver shows this process. Opens none, so it takes no memory on them, and whether they
/// work is not known: free_bytes is 0. Never throws.
[[nodiscard]] CudaStatus list_cuda();

/// Whether this build has CUDA.
[[nodiscard]] bool is_compiled_in();
/// Whether this build supports GPUs and this machine may have one: looks for the driver's files without
/// loading it.
[[nodiscard]] bool may_be_here();

}  // namespace rooflm::backends::cuda
