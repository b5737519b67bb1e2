// This machine's cores as a device.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace rooflm::backends {

/// Which kernels come first in the table.
enum class CpuKernels {
  reference,  ///< Eigen and plain loops, one op at a time
  fast        ///< oneDNN and hand-vectorised loops for fp32 and bf16; the reference for the rest
};

/// "cpu". Both kinds run every op but `attention` in fp32, fp64 and bf16 (stored in bf16, computed in fp32).
/// Kernels run one after another on the calling thread and `threads` - 1 others, and are done when they
/// return; kernels of one backend must not overlap, since they share scratch memory. Results do not depend on
/// earlier calls. Kernels outlive the backend. A token or target beyond the vocabulary throws
/// core::InputError.
/// `threads` 0: one per core that this process may use. Throws core::UsageError when negative.
std::unique_ptr<Backend> make_cpu_backend(CpuKernels kernels, int threads = 0);

}  // namespace rooflm::backends
