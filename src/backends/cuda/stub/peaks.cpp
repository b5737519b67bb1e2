// Stub for builds without a CUDA compiler.
#include "backends/cuda/peaks.h"

#include <fmt/format.h>

#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

[[noreturn]] void refuse(int index) {
  throw core::Unavailable(fmt::format("cuda:{} is not available here: rooflm was built without CUDA: {}",
                                      index, ROOFLM_CUDA_REASON));
}

}  // namespace

std::vector<TimedLoop> memory_loops(int index) { refuse(index); }

std::vector<TimedLoop> link_loops(int index) { refuse(index); }

InstructionLoops instruction_loops(int index, const std::string& /*dtype*/) { refuse(index); }

double l2_bytes(int /*index*/) { return 0; }

}  // namespace rooflm::backends::cuda
