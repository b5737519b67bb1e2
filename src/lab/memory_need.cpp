// What a step needs before anything large is allocated.
#include "lab/memory_need.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "core/units.h"
#include "lab/run.h"

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

std::string describe_shortage(const RunOutcome& outcome) {
  std::string text = "out of memory: needs " + core::format_bytes(outcome.needed_bytes);
  if (outcome.workspace_bytes > 0)
    text += fmt::format(" and {} for kernels", core::format_bytes(outcome.workspace_bytes));
  if (outcome.limit_bytes <= outcome.free_bytes)
    return text + fmt::format("; the limit is {}", core::format_bytes(outcome.limit_bytes));
  if (std::isfinite(outcome.free_bytes))
    text += fmt::format("; {} are free", core::format_bytes(outcome.free_bytes));
  return text;
}

}  // namespace rooflm::lab
