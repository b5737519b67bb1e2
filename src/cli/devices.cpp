// From the names of devices and dtypes to what runs them.
#include "cli/devices.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/null/null_backend.h"
#include "core/cache_file.h"
#include "core/error.h"
#include "core/names.h"

namespace rooflm::cli {

bool is_cuda(const std::string& device) { return device.starts_with("cuda"); }

int cuda_index(const std::string& device) { return std::stoi(device.substr(device.find(':') + 1)); }

std::string parse_device(std::string_view name) {
  if (name == "cpu" || name == "null") return std::string(name);
  if (name == "cuda") return "cuda:0";
  if (name.starts_with("cuda:")) {
    int index = -1;
    const char* end = name.data() + name.size();
    const auto result = std::from_chars(name.data() + 5, end, index);
    if (result.ec == std::errc() && result.ptr == end && index >= 0) return fmt::format("cuda:{}", index);
    throw core::UsageError(fmt::format("--device {}: GPUs are named cuda:0, cuda:1, ...", name));
  }
  throw core::UsageError(core::unknown_name("device", name, std::vector<std::string>{"cpu", "cuda", "null"}));
}

ComputeDtype parse_compute_dtype(std::string_view name, const std::string& device) {
  static const std::vector<std::string> kNames = {"fp32", "tf32", "bf16", "fp16", "fp8"};
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
    throw core::UsageError(core::unknown_name("dtype", name, kNames));
  }
  if (name == "fp32") return {core::DType::f32};
  if (name == "bf16") return {core::DType::bf16};
  if (name == "tf32" && is_cuda(device)) return {.dtype = core::DType::f32, .tf32 = true};
  if (name == "fp16") return {core::DType::f16};
  const char* others = is_cuda(device) ? ", tf32, bf16 and fp16" : ", bf16 and fp16";
  throw core::Unavailable(
      fmt::format("--dtype {} is not available on {}: it computes in fp32{}", name, device, others));
}

void fit_to_device(compile::StepOptions& step, const std::string& device) {
  constexpr std::int64_t kGpuLogits = std::int64_t{2} << 30U;  // bytes in the compute dtype
  if (!is_cuda(device)) return;
  step.loss_chunk_bytes = kGpuLogits * static_cast<std::int64_t>(sizeof(float) / core::size_of(step.dtype));
  step.compact_state = true;
  step.gelu_in_products = true;
}

std::unique_ptr<backends::Backend> make_backend(const std::string& device, compile::EngineKind engine,
                                                int threads, Tuning tuning, SumOrder order) {
  const bool fused = engine == compile::EngineKind::fused;
  if (device == "null") return backends::make_null_backend();
  if (is_cuda(device)) {
    return backends::cuda::make_cuda_backend(cuda_index(device),
                                             {.tune_products = fused && tuning == Tuning::timed,
                                              .product_cache = core::cache_folder(),
                                              .deterministic = order == SumOrder::fixed});
  }
  return backends::make_cpu_backend(fused ? backends::CpuKernels::fast : backends::CpuKernels::reference,
                                    threads);
}

int resolve_threads(int threads) { return threads > 0 ? threads : omp_get_num_procs(); }

}  // namespace rooflm::cli
