// What a step needs before anything large is allocated.
#include "lab/memory_need.h"

#include <algorithm>
#include <cstdint>

namespace rooflm::lab {
namespace {

/// What libraries, code and buffers of the process take besides the plan.
constexpr double kProcessBytes = 256e6;

/// Bytes of the largest weight: initial values pass through a host array of that size.
double largest_weight_bytes(const program::Program& program) {
  std::int64_t largest = 0;
  for (const program::Tensor& tensor : program.tensors) {
    if (tensor.role == program::Role::weight) largest = std::max(largest, tensor.bytes());
  }
  return static_cast<double>(largest);
}

/// Of the kernel with most of it: kernels share their scratch memory.
double largest_workspace_bytes(const program::Program& program, const backends::Backend& backend) {
  std::int64_t largest = 0;
  for (const backends::KernelInfo& kernel : backend.describe_kernels(program))
    largest = std::max(largest, kernel.workspace_bytes);
  return static_cast<double>(largest);
}

}  // namespace

MemoryNeed memory_need(const program::Program& program, double planned_bytes,
                       const backends::Provider& provider, const backends::Backend& backend) {
  return {.planned_bytes = planned_bytes,
          .workspace_bytes = provider.is_host() ? largest_workspace_bytes(program, backend) : 0,
          .besides_bytes = provider.runs() ? largest_weight_bytes(program) + kProcessBytes : 0};
}

}  // namespace rooflm::lab
