// CSV as `nsys stats` prints it: names of columns, order of rows and forms of numbers are those of its
// reports.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/statistics.h"
#include "report/export/export.h"
#include "report/model/launch_shape.h"

namespace rooflm::report {
namespace {

constexpr double kMegabyte = 1e6;

/// A field of CSV (RFC 4180).
std::string field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

/// Durations of one row of a summary.
struct Durations {
  std::vector<double> ns;
  [[nodiscard]] double total() const {
    double sum = 0;
    for (const double one : ns) sum += one;
    return sum;
  }
  /// Avg, Med, Min, Max, StdDev: the sample's standard deviation, 0 of one instance.
  [[nodiscard]] std::string statistics() const {
    const double mean = total() / static_cast<double>(ns.size());
    double squares = 0;
    for (const double one : ns) squares += (one - mean) * (one - mean);
    const double deviation = ns.size() < 2 ? 0 : std::sqrt(squares / static_cast<double>(ns.size() - 1));
    const auto [least, most] = std::ranges::minmax(ns);
    return fmt::format("{:.1f},{:.1f},{:.0f},{:.0f},{:.1f}", mean, core::median(ns), least, most, deviation);
  }
};

/// Rows of "Time (%),Total Time (ns),COUNT,Avg (ns),...,StdDev (ns),REST", largest total first.
void write_summary(const std::map<std::string, Durations>& rows, std::string_view count,
                   std::string_view rest, const TextSink& sink) {
  sink(fmt::format("Time (%),Total Time (ns),{},Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),{}\n", count,
                   rest));
  std::vector<std::pair<double, const std::string*>> order;
  double all = 0;
  for (const auto& [name, durations] : rows) {
    order.emplace_back(durations.total(), &name);
    all += durations.total();
  }
  std::ranges::stable_sort(order, std::greater(), [](const auto& row) { return row.first; });
  for (const auto& [total, name] : order) {
    const Durations& durations = rows.at(*name);
    sink(fmt::format("{:.1f},{:.0f},{},{},{}\n", all > 0 ? 100 * total / all : 0, total, durations.ns.size(),
                     durations.statistics(), *name));
  }
}

void require_rows(bool has_rows, std::string_view what, const Trace& trace, std::vector<std::string>& notes) {
  notes = trace.notes();
  if (!has_rows)
    notes.push_back(fmt::format("run {} has no {}: the report has no rows", trace.run().run.id, what));
}

/// Ranges of one name, as nsys adds them up.
struct RangeSum {
  Durations projected;
  double total_ns = 0;
  std::size_t instances = 0, operations = 0, levels = 0, children = 0;
};

std::string memory_kind(const TraceEvent& event, bool is_source) {
  if (event.kind == "memset") return is_source ? "" : "Device";
  switch (copy_kind(event.name)) {
    case 1:
      return is_source ? "Pageable" : "Device";
    case 2:
      return is_source ? "Device" : "Pageable";
    case 8:
    case 10:
      return "Device";
    case 9:
      return "Pageable";
    default:
      return "";
  }
}

std::string number(const std::optional<std::int64_t>& value) {
  return value ? fmt::format("{}", *value) : "";
}
std::string megabytes(const std::optional<std::int64_t>& bytes) {
  return bytes ? fmt::format("{:.3f}", static_cast<double>(*bytes) / kMegabyte) : "";
}

/// "NCCL:ncclAllReduce"; ":step" in the default domain.
std::string shown_name(const TraceRange& range) {
  return range.nvtx.domain_size > 0 ? range.name : ":" + range.name;
}

std::string_view style_of(const TraceRange& range) {
  return range.nvtx.style == NvtxRange::Style::start_end ? "StartEnd" : "PushPop";
}

std::string operation_name(const TraceEvent& event) {
  if (event.kind == "memset") return "[CUDA memset]";
  switch (copy_kind(event.name)) {
    case 1:
      return "[CUDA memcpy Host-to-Device]";
    case 2:
      return "[CUDA memcpy Device-to-Host]";
    case 8:
      return "[CUDA memcpy Device-to-Device]";
    case 9:
      return "[CUDA memcpy Host-to-Host]";
    case 10:
      return "[CUDA memcpy Peer-to-Peer]";
    default:
      return "[CUDA memcpy]";
  }
}

}  // namespace

std::vector<std::string> write_cuda_gpu_kern_sum(const ExportSource& source, const TextSink& sink) {
  const Trace trace(source.run, source.scope);
  std::map<std::string, Durations> rows;
  for (const TraceEvent& event : trace.events()) {
    if (is_kernel_event(event))
      rows[field(event.name)].ns.push_back(static_cast<double>(event.duration_ns()));
  }
  write_summary(rows, "Instances", "Name", sink);
  std::vector<std::string> notes;
  require_rows(!rows.empty(), "kernels of a GPU", trace, notes);
  return notes;
}

std::vector<std::string> write_cuda_api_sum(const ExportSource& source, const TextSink& sink) {
  const Trace trace(source.run, source.scope);
  std::map<std::string, Durations> rows;
  for (const TraceEvent& event : trace.events()) {
    if (event.kind == "api") rows[field(event.name)].ns.push_back(static_cast<double>(event.duration_ns()));
  }
  write_summary(rows, "Num Calls", "Name", sink);
  std::vector<std::string> notes;
  require_rows(!rows.empty(), "calls of CUDA", trace, notes);
  return notes;
}

std::vector<std::string> write_cuda_gpu_trace(const ExportSource& source, const TextSink& sink) {
  const Trace trace(source.run, source.scope);
  sink(
      "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes "
      "(MB),"
      "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n");
  bool has_rows = false;
  for (const TraceEvent& event : trace.events()) {
    if (!is_device_work(event)) continue;
    has_rows = true;
    std::string what;
    if (is_kernel_event(event)) {
      const LaunchShape shape = parse_launch(event.extra);
      what = fmt::format("{},{},{},{},{},,,,", fmt::join(shape.grid, ","), fmt::join(shape.block, ","),
                         number(shape.registers), megabytes(shape.shared_static),
                         megabytes(shape.shared_dynamic));
    } else {
      const double seconds = static_cast<double>(event.duration_ns()) * 1e-9;
      const std::string rate =
          event.bytes && seconds > 0
              ? fmt::format("{:.3f}", static_cast<double>(*event.bytes) / kMegabyte / seconds)
              : "";
      what = fmt::format(",,,,,,,,,{},{},{},{}", megabytes(event.bytes), rate, memory_kind(event, true),
                         memory_kind(event, false));
    }
    sink(fmt::format("{},{},{},{},{},1,,{},{}\n", event.start_ns, event.duration_ns(),
                     number(event.correlation), what,
                     field(fmt::format("{} ({})", device_title(source.file, event.lane->device),
                                       device_number(event.lane->device))),
                     number(event.lane->stream),
                     field(is_kernel_event(event) ? std::string(event.name) : operation_name(event))));
  }
  std::vector<std::string> notes;
  require_rows(has_rows, "work of a GPU", trace, notes);
  return notes;
}

std::vector<std::string> write_nvtx_sum(const ExportSource& source, const TextSink& sink) {
  const Trace trace(source.run, source.scope);
  std::map<std::string, Durations> rows;
  for (const TraceRange& range : trace.ranges()) {
    if (range.thread == nullptr || range.nvtx.style == NvtxRange::Style::mark) continue;
    rows[fmt::format("{},{}", style_of(range), field(shown_name(range)))].ns.push_back(
        static_cast<double>(range.end_ns - range.start_ns));
  }
  write_summary(rows, "Instances", "Style,Range", sink);
  std::vector<std::string> notes;
  require_rows(!rows.empty(), "ranges on a thread", trace, notes);
  return notes;
}

std::vector<std::string> write_nvtx_kern_sum(const ExportSource& source, const TextSink& sink) {
  const Trace trace(source.run, source.scope);
  struct Sum {
    Durations durations;
    std::size_t ranges = 0, last = 0;
  };
  std::map<std::tuple<std::string, std::string_view, std::int64_t>, std::map<std::string, Sum>> rows;
  std::size_t place = 0;
  for (const TraceRange& range : trace.ranges()) {
    ++place;
    const std::int64_t thread = range.thread == nullptr ? trace.process() : trace.thread_of(*range.thread);
    for (const std::size_t i : range.work) {
      const TraceEvent& event = trace.events()[i];
      if (!is_kernel_event(event)) continue;
      Sum& sum = rows[{shown_name(range), style_of(range), thread}][std::string(event.name)];
      sum.durations.ns.push_back(static_cast<double>(event.duration_ns()));
      if (sum.last != place) ++sum.ranges;
      sum.last = place;
    }
  }
  sink(
      "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max "
      "(ns),StdDev (ns),"
      "Kernel Name\n");
  for (const auto& [key, kernels] : rows) {
    std::vector<std::pair<double, const std::string*>> order;
    for (const auto& [name, sum] : kernels) order.emplace_back(sum.durations.total(), &name);
    std::ranges::stable_sort(order, std::greater(), [](const auto& row) { return row.first; });
    for (const auto& [total, name] : order) {
      const Sum& sum = kernels.at(*name);
      sink(fmt::format("{},{},{},{},{},{},{:.0f},{},{}\n", field(std::get<0>(key)), std::get<1>(key),
                       trace.process(), std::get<2>(key), sum.ranges, sum.durations.ns.size(), total,
                       sum.durations.statistics(), field(*name)));
    }
  }
  std::vector<std::string> notes;
  require_rows(!rows.empty(), "kernels within ranges", trace, notes);
  return notes;
}

std::vector<std::string> write_nvtx_gpu_proj_sum(const ExportSource& source, const TextSink& sink) {
  const Trace trace(source.run, source.scope);
  std::map<std::string, RangeSum> rows;
  for (const TraceRange& range : trace.ranges()) {
    if (range.work.empty()) continue;
    std::int64_t start = trace.events()[range.work.front()].start_ns;
    std::int64_t end = start;
    for (const std::size_t i : range.work) {
      start = std::min(start, trace.events()[i].start_ns);
      end = std::max(end, trace.events()[i].end_ns);
    }
    RangeSum& sum = rows[fmt::format("{},{}", field(shown_name(range)), style_of(range))];
    sum.projected.ns.push_back(static_cast<double>(end - start));
    sum.total_ns += static_cast<double>(range.end_ns - range.start_ns);
    ++sum.instances;
    sum.operations += range.work.size();
    sum.levels += range.level;
    sum.children += range.children;
  }
  sink(
      "Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances,Proj Avg (ns),Proj Med (ns),"
      "Proj Min (ns),Proj Max (ns),Proj StdDev (ns),Total GPU Ops,Avg GPU Ops,Avg Range Lvl,Avg Num Child\n");
  std::vector<std::pair<double, const std::string*>> order;
  for (const auto& [name, sum] : rows) order.emplace_back(sum.projected.total(), &name);
  std::ranges::stable_sort(order, std::greater(), [](const auto& row) { return row.first; });
  for (const auto& [total, name] : order) {
    const RangeSum& sum = rows.at(*name);
    const auto average = [&](std::size_t value) {
      return static_cast<double>(value) / static_cast<double>(sum.instances);
    };
    sink(fmt::format("{},{:.0f},{:.0f},{},{},{},{:.1f},{:.1f},{:.1f}\n", *name, total, sum.total_ns,
                     sum.instances, sum.projected.statistics(), sum.operations, average(sum.operations),
                     average(sum.levels), average(sum.children)));
  }
  std::vector<std::string> notes;
  require_rows(!rows.empty(), "work of a GPU within ranges", trace, notes);
  return notes;
}

}  // namespace rooflm::report
