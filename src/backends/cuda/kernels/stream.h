// The stream that launchers submit to, without a header of CUDA.
#pragma once

struct CUstream_st;

namespace rooflm::backends::cuda {

/// cudaStream_t.
using Stream = CUstream_st*;

}  // namespace rooflm::backends::cuda
