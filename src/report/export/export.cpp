// The list of formats that runs are exported in.
#include "report/export/export.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/names.h"

namespace rooflm::report {
namespace {

constexpr std::array kExportFormats{
    ExportFormat{"kineto", "Chrome trace as torch.profiler writes it: Perfetto, chrome://tracing, HTA",
                 write_kineto},
    ExportFormat{"nsys-sqlite", "the database of nsys export, for its stats scripts", nullptr,
                 write_nsys_sqlite, false},
    ExportFormat{"cuda_gpu_kern_sum", "nsys stats, CSV: kernels by name", write_cuda_gpu_kern_sum},
    ExportFormat{"cuda_gpu_trace", "nsys stats, CSV: every kernel, copy and memset", write_cuda_gpu_trace},
    ExportFormat{"cuda_api_sum", "nsys stats, CSV: CUDA calls by name", write_cuda_api_sum},
    ExportFormat{"nvtx_sum", "nsys stats, CSV: ranges by name, host time", write_nvtx_sum},
    ExportFormat{"nvtx_kern_sum", "nsys stats, CSV: kernels by the ranges around them", write_nvtx_kern_sum},
    ExportFormat{"nvtx_gpu_proj_sum", "nsys stats, CSV: ranges projected onto the GPU",
                 write_nvtx_gpu_proj_sum},
    ExportFormat{"torch-memory", "memory snapshot of PyTorch, for memory_viz", write_torch_memory, nullptr,
                 false},
    ExportFormat{"folded", "flame graph: folded stacks, nanoseconds", write_folded},
    ExportFormat{"speedscope", "flame graph: JSON of speedscope.app", write_speedscope},
    ExportFormat{"stacks", "flame graph of the host: folded stacks, samples", write_host_folded},
    ExportFormat{"stacks-speedscope", "flame graph of the host: JSON of speedscope.app",
                 write_host_speedscope},
    ExportFormat{"openmetrics", "figures of the step as OpenMetrics text", write_openmetrics},
};

}  // namespace

std::span<const ExportFormat> export_formats() { return kExportFormats; }

const ExportFormat& export_format(std::string_view name, std::span<const std::string_view> others) {
  std::vector<std::string> names;
  for (const ExportFormat& format : kExportFormats) {
    if (format.name == name) return format;
    names.emplace_back(format.name);
  }
  names.insert(names.end(), others.begin(), others.end());
  throw core::UsageError(core::unknown_name("format", name, names));
}

std::string device_title(const RecordFile& file, std::string_view device) {
  for (const record::Environment& row : file.environment) {
    if (row.key == fmt::format("device {}", device)) return row.value.substr(0, row.value.find(','));
  }
  return std::string(device);
}

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace rooflm::report
