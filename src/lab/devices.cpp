// Resolves names of devices and dtypes.
#include "lab/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backends/thread_team.h"
#include "core/error.h"
#include "core/names.h"
#include "record/config.h"

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

/// "fp32|bf16" as its parts.
std::vector<std::string> parts_of(std::string_view values) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= values.size();) {
    const std::size_t end = std::min(values.find('|', begin), values.size());
    parts.emplace_back(values.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

bool runs(const std::string& device) { return backends::provider_of(device).runs(); }

bool is_host(const std::string& device) { return backends::provider_of(device).is_host(); }

void require_runs(const std::string& device, std::string_view what) {
  if (!runs(device)) {
    throw core::UsageError(fmt::format("--device {} runs nothing, so nothing can be {} there", device, what));
  }
}

std::string name_of(const ComputeDtype& compute) {
  return std::string(program::rate_name(compute.dtype, compute.fp32_products));
}

ComputeDtype parse_compute_dtype(std::string_view name, const std::string& device,
                                 const devices::Device& description) {
  const std::vector<std::string> names = parts_of(record::find_field("dtype")->values);
  if (std::ranges::find(names, name) == names.end()) {
    throw core::UsageError(core::unknown_name("dtype", name, names));
  }
  if (!description.computes(name)) {
    throw core::Unavailable(fmt::format("--dtype {} is not available on {}: it computes in {}", name, device,
                                        enumerate(description.dtypes)));
  }
  if (const auto products = program::find_fp32_products(name)) {
    return {.dtype = core::DType::f32, .fp32_products = *products};
  }
  const auto dtype = core::find_dtype(&core::DTypeFacts::name, name);
  if (!dtype)
    throw std::logic_error(
        fmt::format("the catalog lets {} compute in {}, which is not a dtype", device, name));
  return {.dtype = *dtype};
}

ComputeDtype parse_operand_dtype(std::string_view name, const std::string& device,
                                 const devices::Device& description) {
  const ComputeDtype compute = parse_compute_dtype(name, device, description);
  if (!core::is_fp8(compute.dtype)) return compute;
  throw core::Unavailable(
      fmt::format("--dtype {}: single ops are measured in {}; fp8 matmuls are measured by peaks and in steps",
                  name, enumerate(wider_dtypes(description))));
}

void set_compute_dtype(compile::StepOptions& step, const ComputeDtype& compute) {
  step.fp8 = compute.dtype == core::DType::f8;
  step.dtype = step.fp8 ? core::DType::bf16 : compute.dtype;
  step.fp32_products = compute.fp32_products;
}

ComputeDtype compute_dtype_of(const compile::StepOptions& step) {
  return {.dtype = step.fp8 ? core::DType::f8 : step.dtype, .fp32_products = step.fp32_products};
}

std::unique_ptr<backends::Backend> make_backend(const std::string& device, compile::EngineKind engine,
                                                backends::MakeOptions options) {
  options.fast = engine == compile::EngineKind::fused;
  return backends::provider_of(device).make(device, options);
}

int most_threads() { return backends::most_threads(); }

int resolve_threads(int threads) { return threads > 0 ? threads : backends::default_team(); }

}  // namespace rooflm::lab
