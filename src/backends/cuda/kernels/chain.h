// Kernels that start while the one before them ends.
#pragma once

namespace rooflm::backends::cuda {

/// Whether kernels that this thread launches from here on may start while the one before them in their stream
/// still runs, where they can (chain.cuh). False at first.
void chain_launches(bool may_overlap);

}  // namespace rooflm::backends::cuda
