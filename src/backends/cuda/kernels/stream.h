// The stream type of launchers, without a CUDA header.
#pragma once

struct CUstream_st;

namespace rooflm::backends::cuda {

/// cudaStream_t.
using Stream = CUstream_st*;

}  // namespace rooflm::backends::cuda
