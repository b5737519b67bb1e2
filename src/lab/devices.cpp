// Resolves names of devices and dtypes.
#include "lab/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "backends/thread_team.h"
#include "core/error.h"

namespace rooflm::lab {
namespace {

/// "fp32, bf16 and fp16"
std::string enumerate(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

/// What the device computes in beside fp8.
std::vector<std::string> wider_dtypes(const devices::Device& description) {
  std::vector<std::string> names = description.dtypes;
  std::erase(names, core::name_of(core::DType::f8));
  return names;
}

}  // namespace

bool runs(const std::string& device) { return backends::provider_of(device).runs(); }

bool is_host(const std::string& device) { return backends::provider_of(device).is_host(); }

void require_runs(const std::string& device, std::string_view what) {
  if (!runs(device)) {
    throw core::UsageError(fmt::format("--device {} runs nothing, so nothing can be {} there", device, what));
  }
}

void check_dtype(const ComputeDtype& compute, const std::string& device, const devices::Device& description) {
  if (description.computes(name_of(compute))) return;
  throw core::Unavailable(fmt::format("--dtype {} is not available on {}: it computes in {}",
                                      name_of(compute), device, enumerate(description.dtypes)));
}

ComputeDtype parse_compute_dtype(std::string_view name, const std::string& device,
                                 const devices::Device& description) {
  const auto compute = core::parse<ComputeDtype>(name);
  check_dtype(compute, device, description);
  return compute;
}

ComputeDtype parse_operand_dtype(std::string_view name, const std::string& device,
                                 const devices::Device& description) {
  const ComputeDtype compute = parse_compute_dtype(name, device, description);
  if (!core::is_fp8(compute.dtype)) return compute;
  throw core::Unavailable(
      fmt::format("--dtype {}: single ops are measured in {}; fp8 matmuls are measured by peaks and in steps",
                  name, enumerate(wider_dtypes(description))));
}

std::unique_ptr<backends::Backend> make_backend(const std::string& device, compile::EngineKind engine,
                                                backends::MakeOptions options) {
  options.fast = engine == compile::EngineKind::fused;
  return backends::provider_of(device).make(device, options);
}

int most_threads() { return backends::most_threads(); }

int resolve_threads(int threads) { return threads > 0 ? threads : backends::default_team(); }

}  // namespace rooflm::lab
