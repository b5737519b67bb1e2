// The provider of NVIDIA GPUs.
#include "backends/provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "backends/cuda/gpu_state.h"
#include "backends/cuda/kernels_file.h"
#include "backends/cuda/nvml.h"
#include "backends/cuda/peaks.h"
#include "core/cache_file.h"
#include "core/error.h"
#include "core/units.h"

namespace rooflm::backends {
namespace {

using Json = nlohmann::ordered_json;

/// The N of "cuda:N".
int index_of(const std::string& device) { return std::stoi(device.substr(device.find(':') + 1)); }

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string clock_text(const char* what, std::optional<int> now, std::optional<int> most) {
  if (!now || !most) return {};
  return fmt::format("{} {} MHz now, {} MHz at most", what, *now, *most);
}

/// Without cuDNN attention runs on rooflm's own kernels.
Json cudnn_json() {
  const auto status = cuda::query_cudnn();
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  return {{"available", !status.version.empty()},
          {"version", text(status.version)},
          {"reason", text(status.reason)}};
}

Json device_json(const cuda::CudaDevice& device) {
  return {{"index", device.index},
          {"name", device.name},
          {"sm_count", device.sm_count},
          {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
          {"total_bytes", device.total_bytes},
          {"free_bytes", device.free_bytes},
          {"driver_version", device.driver_version},
          {"runtime_version", device.runtime_version}};
}

void add_device(Lines& lines, const cuda::CudaDevice& device) {
  const std::string name = fmt::format("device cuda:{}", device.index);
  const cuda::GpuState state = cuda::query_state(device.index);
  const std::string free =
      state.free_bytes ? fmt::format("{} of ", core::format_bytes(*state.free_bytes)) : std::string();
  lines.emplace_back(name, fmt::format("{}, {}{}{}", device.name, free,
                                       core::format_bytes(device.total_bytes), free.empty() ? "" : " free"));
  lines.emplace_back(name + " processors",
                     fmt::format("{} multiprocessors, compute capability {}.{}", device.sm_count,
                                 device.compute_major, device.compute_minor));
  lines.emplace_back(name + " driver", fmt::format("{}, for CUDA up to {}",
                                                   state.driver.empty() ? "version not known" : state.driver,
                                                   version_text(device.driver_version)));
  lines.emplace_back(name + " CUDA runtime", version_text(device.runtime_version));
  const std::string sm = clock_text("multiprocessors", state.sm_mhz, state.sm_max_mhz);
  const std::string memory = clock_text("memory", state.memory_mhz, state.memory_max_mhz);
  if (!sm.empty()) lines.emplace_back(name + " clocks", memory.empty() ? sm : sm + "; " + memory);
  if (state.power_limit_w) {
    lines.emplace_back(name + " power", fmt::format("{:.0f} W at most", *state.power_limit_w));
  }
  const std::string missing = cuda::find_gauges(device.index).missing;
  if (!missing.empty()) lines.emplace_back(name + " power, clocks and energy", "not available: " + missing);
}

/// Whether it has fp8 tensor cores: Ada, Hopper and later.
bool has_fp8(const cuda::CudaDevice& device) {
  constexpr std::pair kFirst{8, 9};
  return std::pair(device.compute_major, device.compute_minor) >= kFirst;
}

/// Whether it has the instructions of bf16x6 (kernels/gemm_bf16x6.h): Hopper alone.
bool has_bf16x6(const cuda::CudaDevice& device) {
  constexpr int kHopper = 9;
  return device.compute_major == kHopper;
}

class CudaProvider final : public Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "cuda"; }

  [[nodiscard]] std::string parse(std::string_view rest) const override {
    if (rest.empty()) return "cuda:0";
    int index = -1;
    const char* end = rest.data() + rest.size();
    const auto result = std::from_chars(rest.data(), end, index);
    if (result.ec == std::errc() && result.ptr == end && index >= 0) return fmt::format("cuda:{}", index);
    throw core::UsageError(fmt::format("--device cuda:{}: GPUs are named cuda:0, cuda:1, ...", rest));
  }

  [[nodiscard]] devices::Device describe(const std::string& device) const override {
    const cuda::CudaStatus status = cuda::query_cuda(index_of(device));
    if (status.devices.empty()) return devices::device_of_kind(devices::Kind::gpu);
    const cuda::CudaDevice& found = status.devices.front();
    devices::Device described = devices::device_reported_as(found.name, devices::Kind::gpu);
    // What the device itself reports takes precedence over the catalog.
    described.name = found.name;
    described.multiprocessors = found.sm_count;
    if (!has_fp8(found)) described.leave_out("fp8");
    if (!has_bf16x6(found)) described.leave_out("bf16x6");
    const auto rate = [&](const std::string& level) {
      const auto known = std::ranges::find(described.memory, level, &devices::MemoryLevel::name);
      return known == described.memory.end() ? 0.0 : known->byte_per_s;
    };
    described.memory = {{.name = "L2", .bytes = cuda::l2_bytes(found.index), .byte_per_s = rate("L2")},
                        {.name = "DRAM", .bytes = found.total_bytes, .byte_per_s = rate("DRAM")}};
    return described;
  }

  [[nodiscard]] std::unique_ptr<Backend> make(const std::string& device,
                                              const MakeOptions& options) const override {
    // The eager engine represents frameworks, which use the library's first proposal.
    const GemmSearch search = options.fast ? options.gemm_search : GemmSearch::none;
    return cuda::make_cuda_backend(index_of(device), {.gemm_search = search,
                                                      .gemm_cache = core::cache_folder(),
                                                      .gemm_choices = options.gemm_choices,
                                                      .deterministic = options.deterministic,
                                                      .sharers = options.sharers});
  }

  void join(Backend& backend, const std::shared_ptr<ranks::Transport>& transport, const program::Mesh& mesh,
            CollectiveWish wish) const override {
    cuda::join_ranks(backend, transport, mesh, wish);
  }

  [[nodiscard]] std::string collectives() const override {
    try {
      return "NCCL " + cuda::nccl_version();
    } catch (const core::Unavailable& error) {
      return fmt::format("not available: {}", error.what());
    }
  }

  [[nodiscard]] FoundDevice find_usable(int first) const override {
    const cuda::CudaStatus listed = cuda::list_cuda();
    const std::size_t count = listed.devices.size();
    FoundDevice found{.name = {}, .missing = listed.reason};
    for (std::size_t i = 0; i < count; ++i) {
      const int index = listed.devices[(static_cast<std::size_t>(first) + i) % count].index;
      const cuda::CudaStatus tried = cuda::query_cuda(index);
      if (!tried.devices.empty()) return {.name = fmt::format("cuda:{}", index)};
      found.missing += (found.missing.empty() ? "" : "; ") + tried.reason;
    }
    return found;
  }

  [[nodiscard]] int count() const override { return static_cast<int>(cuda::list_cuda().devices.size()); }

  [[nodiscard]] std::vector<std::string> offered_dtypes(bool anywhere) const override {
    const bool is_offered = anywhere ? cuda::is_compiled_in() : cuda::may_be_here();
    return is_offered ? devices::device_of_kind(devices::Kind::gpu).dtypes : std::vector<std::string>();
  }

  [[nodiscard]] Lines environment(bool opens) const override {
    const cuda::CudaStatus status = opens ? cuda::query_cuda() : cuda::list_cuda();
    Lines lines;
    if (std::string kernels = cuda::describe_kernels(); !kernels.empty()) {
      lines.emplace_back("kernels of cuda", std::move(kernels));
    }
    if (status.devices.empty()) {
      lines.emplace_back("device cuda", "not available: " + status.reason);
      return lines;
    }
    for (const auto& device : status.devices) add_device(lines, device);
    const auto cudnn = cuda::query_cudnn();
    lines.emplace_back("attention on GPUs",
                       cudnn.version.empty()
                           ? "own kernels: " + cudnn.reason
                           : "cuDNN " + cudnn.version + " where it is faster, else own kernels");
    return lines;
  }

  [[nodiscard]] std::string environment_json() const override {
    const cuda::CudaStatus status = cuda::query_cuda();
    Json devices = Json::array();
    for (const auto& device : status.devices) devices.push_back(device_json(device));
    const Json json = {{"available", !status.devices.empty()},
                       {"reason", status.reason},
                       {"devices", std::move(devices)},
                       {"cudnn", status.devices.empty() ? Json() : cudnn_json()}};
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  [[nodiscard]] FoundGauges gauges(const std::string& device) const override {
    return cuda::find_gauges(index_of(device));
  }

  [[nodiscard]] GemmChoices gemm_choices(const Backend& backend) const override {
    return cuda::gemm_choices(backend);
  }

  [[nodiscard]] std::vector<TimedLoop> memory_loops(const std::string& device) const override {
    return cuda::memory_loops(index_of(device));
  }
  [[nodiscard]] std::vector<TimedLoop> link_loops(const std::string& device) const override {
    return cuda::link_loops(index_of(device));
  }
  [[nodiscard]] InstructionLoops instruction_loops(const std::string& device,
                                                   const std::string& dtype) const override {
    return cuda::instruction_loops(index_of(device), dtype);
  }
};

}  // namespace

const Provider& cuda_provider() {
  static const CudaProvider provider;
  return provider;
}

}  // namespace rooflm::backends
