# Generates a source file with the identity of the CUDA kernels: the version, and a digest of their sources
# and of what they share with their callers. It is compiled into the binary and into each kernel library.
# Usage: cmake -D OUT=FILE -D VERSION=TEXT -P kernels_identity.cmake -- FILE...
cmake_policy(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/script_arguments.cmake")
digest_of_files(digest "")
file(CONFIGURE OUTPUT "${OUT}" @ONLY CONTENT [=[
// Which CUDA kernels these are. Written by cmake/kernels_identity.cmake.
#include "backends/cuda/kernels_file.h"

extern "C" {
extern const char rooflm_kernels_identity[];
const char rooflm_kernels_identity[] = "@VERSION@ @digest@";
}

namespace rooflm::backends::cuda {

std::string_view kernels_identity() { return rooflm_kernels_identity; }

}  // namespace rooflm::backends::cuda
]=])
