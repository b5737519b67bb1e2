// This machine's CPU as a device.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace rooflm::backends {

/// Which kernels come first in the table.
enum class CpuKernels {
  reference,  ///< Eigen and plain loops, one op at a time
  fast        ///< oneDNN and hand-vectorised loops for fp32 and bf16; the reference for the rest
};

/// "cpu". Both kinds run every op except `attention` in fp32, fp64 and bf16 (stored as bf16, computed in
/// fp32). Kernels run one at a time, on the calling thread and `threads` - 1 others, and are synchronous.
/// Kernels of one backend must not overlap: they share scratch memory. Results do not depend on earlier
/// calls. Kernels outlive the backend. A token or target outside the vocabulary throws core::InputError.
/// `threads` 0: one per core available to this process. Throws core::UsageError if negative or above
/// OMP_THREAD_LIMIT, std::system_error if the system cannot start so many, core::Unavailable if OpenMP does
/// not.
std::unique_ptr<Backend> make_cpu_backend(CpuKernels kernels, int threads = 0);

}  // namespace rooflm::backends
