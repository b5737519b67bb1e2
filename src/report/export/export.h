// A run in the formats of other tools. docs/export.md lists them; each format is a file of this folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/export/trace.h"
#include "report/model/run_data.h"
#include "report/runs/job_ranks.h"

namespace rooflm::report {

/// Takes text as it is made.
using TextSink = std::function<void(std::string_view)>;

/// What to export.
struct ExportSource {
  const RecordFile& file;
  const RunData& run;
  TraceScope scope{};
  std::span<const RankRun> ranks{};  ///< of a job that `run` is the first of; only `kineto` shows them
};

struct ExportFormat {
  std::string_view name;
  std::string_view title;
  /// Writes the run; returns what the format could not show, in sentences. Throws core::UsageError where the
  /// run has nothing that the format can hold.
  std::vector<std::string> (*write)(const ExportSource& source, const TextSink& sink) = nullptr;
  /// Instead of `write`: makes a database of the empty file `path`.
  std::vector<std::string> (*write_database)(const ExportSource& source,
                                             const std::filesystem::path& path) = nullptr;
  bool is_text = true;  ///< fit for a terminal
};

/// In the order in which help lists them.
std::span<const ExportFormat> export_formats();
/// Throws core::UsageError with the nearest name.
const ExportFormat& export_format(std::string_view name, std::span<const std::string_view> others = {});

// The formats. CSV reports as `nsys stats` prints them:
std::vector<std::string> write_cuda_gpu_kern_sum(const ExportSource& source, const TextSink& sink);
std::vector<std::string> write_cuda_gpu_trace(const ExportSource& source, const TextSink& sink);
std::vector<std::string> write_cuda_api_sum(const ExportSource& source, const TextSink& sink);
std::vector<std::string> write_nvtx_sum(const ExportSource& source, const TextSink& sink);
std::vector<std::string> write_nvtx_kern_sum(const ExportSource& source, const TextSink& sink);
std::vector<std::string> write_nvtx_gpu_proj_sum(const ExportSource& source, const TextSink& sink);
/// The database that `nsys export --type sqlite` makes.
std::vector<std::string> write_nsys_sqlite(const ExportSource& source, const std::filesystem::path& path);
/// JSON of Kineto (torch.profiler), which Perfetto, chrome://tracing and HTA read.
std::vector<std::string> write_kineto(const ExportSource& source, const TextSink& sink);
/// Pickle of torch.cuda.memory, which memory_viz reads.
std::vector<std::string> write_torch_memory(const ExportSource& source, const TextSink& sink);
/// Device time by phase, scope, op and kernel: "a;b;c 123" in nanoseconds, and speedscope's JSON.
std::vector<std::string> write_folded(const ExportSource& source, const TextSink& sink);
std::vector<std::string> write_speedscope(const ExportSource& source, const TextSink& sink);
/// Where the host was, in samples, in the same two forms.
std::vector<std::string> write_host_folded(const ExportSource& source, const TextSink& sink);
std::vector<std::string> write_host_speedscope(const ExportSource& source, const TextSink& sink);
/// Figures of the step as OpenMetrics text (Prometheus).
std::vector<std::string> write_openmetrics(const ExportSource& source, const TextSink& sink);

/// "NVIDIA H100 80GB HBM3" of "cuda:0"; the device's own name where the record does not say.
std::string device_title(const RecordFile& file, std::string_view device);
/// `text` as a JSON string in quotes; bytes that are no UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

}  // namespace rooflm::report
