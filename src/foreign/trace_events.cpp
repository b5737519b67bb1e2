// Events of Chrome traces as rows of a run.
#include "foreign/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "core/printable.h"

namespace rooflm::foreign {
namespace {

constexpr std::int64_t kMostDevices = 256;
/// Events that nobody said anything about: what they are is known when lanes have names.
constexpr std::string_view kUnsaid = "unsaid";

struct Category {
  std::string_view name, kind;
};
constexpr Category kCategories[] = {{"kernel", "kernel"},
                                    {"gpu_memcpy", "copy"},
                                    {"gpu_memset", "memset"},
                                    {"cuda_runtime", "api"},
                                    {"cuda_driver", "api"},
                                    {"cuda_sync", "sync"},
                                    {"overhead", "overhead"},
                                    {"cpu_op", "op"},
                                    {"user_annotation", "range"},
                                    {"python_function", "range"},
                                    {"gpu_user_annotation", "range"}};

std::string_view kind_of(std::string_view category) {
  const auto* const found = std::ranges::find(kCategories, category, &Category::name);
  if (found != std::end(kCategories)) return found->kind;
  return category.empty() || category == "Trace" ? kUnsaid : std::string_view("range");
}

bool is_device_kind(std::string_view kind) { return kind == "kernel" || kind == "copy" || kind == "memset"; }

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// As records call copies: "Memcpy HtoD (Pageable -> Device)" is "copy host to device".
std::string copy_of(std::string_view name) {
  constexpr std::pair<std::string_view, std::int64_t> kWays[] = {
      {"HtoD", 1}, {"DtoH", 2}, {"DtoD", 8}, {"HtoH", 9}, {"PtoP", 10}};
  for (const auto& [word, kind] : kWays) {
    if (name.find(word) != std::string_view::npos) return copy_text(kind);
  }
  return copy_text(0);
}

/// 1 of "/device:GPU:1" and "GPU 1"; nothing of names without a GPU.
std::optional<std::int64_t> gpu_in(std::string_view name) {
  const auto at = name.find("GPU");
  if (at == std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  const std::string_view rest = name.substr(std::min(name.size(), at + 4));
  std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return std::clamp<std::int64_t>(number, 0, kMostDevices - 1);
}

}  // namespace

void RawEvent::set_text(std::string_view key, const std::string& text) {
  if (key == "ph") phase = text;
  if (key == "cat") category = text;
  if (key == "name") name = text;
  if (key == "pid") process_text = text;
  if (key == "tid") thread_text = text;
}

void RawEvent::set_number(std::string_view key, std::optional<std::int64_t> value) {
  if (key == "pid") process = value;
  if (key == "tid") thread = value;
}

void RawEvent::set_arg_text(std::string_view key, const std::string& text) {
  if (key == "name" || key == "labels") arg_name = text;
  // Some write numbers as texts.
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) {
    set_arg_number(key, static_cast<double>(value), value);
  }
}

void RawEvent::set_arg_number(std::string_view key, double value, std::optional<std::int64_t> whole) {
  const auto member = [&](std::string_view as, const std::string& number) {
    extra += fmt::format(R"({}"{}":{})", extra.empty() ? "" : ",", as, number);
  };
  constexpr double kPercent = 100;
  if (key == "stream") stream = whole;
  if (key == "device") device = whole;
  if (key == "correlation") correlation = whole;
  if (key == "bytes") bytes = whole;
  if (key == "step") step = whole;
  if (key == "Bytes") memory_bytes = whole;
  if (key == "Addr") address = whole;
  if (key == "Device Type") device_type = whole;
  if (key == "Device Id") device_id = whole;
  if (key == "registers per thread" && whole) member("registers", fmt::format("{}", *whole));
  if (key == "shared memory" && whole) member("shared_dynamic", fmt::format("{}", *whole));
  if (key == "graph node id" && whole) member("node", fmt::format("{}", *whole));
  if (key == "est. achieved occupancy %" && value >= 0 && value <= kPercent) {
    member("occupancy", fmt::format("{:.4g}", value / kPercent));
  }
}

void TraceEvents::restart() {
  open_.clear();
  host_lanes_.clear();
  taken_ = 0;
}

TraceEvents::Track TraceEvents::track_of(const RawEvent& event) {
  const auto number = [&](const std::optional<std::int64_t>& value, const std::string& text) {
    if (value) return *value;
    std::int64_t parsed = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (!text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size()) return parsed;
    constexpr std::int64_t kFirst = 1'000'000'000;
    return text.empty()
               ? 0
               : text_numbers_.try_emplace(text, kFirst + static_cast<std::int64_t>(text_numbers_.size()))
                     .first->second;
  };
  return {number(event.process, event.process_text), number(event.thread, event.thread_text)};
}

std::int64_t TraceEvents::host_lane(const Track& track) {
  const std::int64_t lane = run_.lane(fmt::format("host {} {}", track.first, track.second),
                                      {.kind = "host",
                                       .device = "cpu",
                                       .thread = track.second,
                                       .name = fmt::format("thread {}", track.second)});
  host_lanes_.try_emplace(track, lane);
  return lane;
}

void TraceEvents::take(const RawEvent& event) {
  if (event.phase == "X") {
    take_slice(event);
  } else if (event.phase == "B" && event.start_ns) {
    open_[track_of(event)].push_back({*event.start_ns, event.category, event.name});
  } else if (event.phase == "E" && event.start_ns) {
    std::vector<Open>& open = open_[track_of(event)];
    if (open.empty()) return run_.count("ends of events without a beginning were left out");
    RawEvent whole = event;
    whole.name = open.back().name;
    whole.category = open.back().category;
    whole.start_ns = open.back().start_ns;
    whole.duration_ns = *event.start_ns - open.back().start_ns;
    open.pop_back();
    take_slice(whole);
  } else if ((event.phase == "i" || event.phase == "I") && event.name == "[memory]") {
    take_memory(event);
  } else if (event.phase == "M") {
    take_name(event);
  } else if (event.phase.empty()) {
    run_.count("events without \"ph\" were left out");
  }
}

void TraceEvents::take_slice(const RawEvent& event) {
  if (!event.start_ns || !event.duration_ns)
    return run_.count("events without a time or a duration were left out");
  std::int64_t end_ns = 0;
  if (__builtin_add_overflow(*event.start_ns, *event.duration_ns, &end_ns)) {
    return run_.count("events with impossible times were left out");
  }
  // The span of the whole trace, which Kineto adds for viewers.
  if (event.category == "Trace" && event.name.starts_with("PyTorch Profiler")) return;
  const std::string_view kind = kind_of(event.category);
  const Track track = track_of(event);
  record::Activity made{.start_ns = *event.start_ns, .end_ns = end_ns, .step = event.step};
  const bool is_annotation = event.category == "gpu_user_annotation";
  if (is_device_kind(kind) || is_annotation) {
    const std::int64_t device =
        std::clamp<std::int64_t>(event.device.value_or(track.first), 0, kMostDevices - 1);
    const std::int64_t stream = event.stream.value_or(track.second);
    const char* what = is_annotation ? "annotations of stream" : "stream";
    made.lane = run_.lane(fmt::format("{} {} {}", what, device, stream),
                          {.kind = "device",
                           .device = fmt::format("cuda:{}", device),
                           .stream = stream,
                           .name = fmt::format("{} {}", what, stream)});
  } else {
    made.lane = host_lane(track);
  }
  made.name = run_.name(kind, kind == "copy"     ? copy_of(event.name)
                              : kind == "memset" ? "memset"
                                                 : event.name);
  // A call that starts nothing has correlation 0 in some versions.
  if (event.correlation && *event.correlation != 0) made.correlation = event.correlation;
  if (kind == "copy" || kind == "memset") made.bytes = event.bytes;
  if (kind == "kernel" && !event.extra.empty()) made.extra = "{" + event.extra + "}";
  if (run_.add(std::move(made))) ++taken_;
}

void TraceEvents::take_memory(const RawEvent& event) {
  if (!event.start_ns || !event.memory_bytes)
    return run_.count("allocations without time or size were left out");
  const bool is_gpu = event.device_type.value_or(1) == 1;
  const std::int64_t device = std::clamp<std::int64_t>(event.device_id.value_or(0), 0, kMostDevices - 1);
  run_.add_memory(*event.start_ns, *event.memory_bytes, event.address,
                  is_gpu ? fmt::format("cuda:{}", device) : "cpu");
  ++taken_;
}

void TraceEvents::take_name(const RawEvent& event) {
  const Track track = track_of(event);
  if (event.name == "process_name" || event.name == "process_labels") {
    process_names_[track.first] += event.arg_name + " ";
  } else if (event.name == "thread_name" && !event.arg_name.empty()) {
    thread_names_[track] = event.arg_name;
  }
}

void TraceEvents::finish() {
  for (const auto& [track, open] : open_) {
    if (!open.empty()) run_.count("events without an end were left out", open.size());
  }
  // XLA's traces have no categories: there names of processes and threads say what runs on a device.
  std::map<std::int64_t, bool> is_device;
  for (const auto& [track, number] : host_lanes_) {
    record::Lane& lane = run_.lane(number);
    const auto thread = thread_names_.find(track);
    if (thread != thread_names_.end()) lane.name = thread->second;
    const auto process = process_names_.find(track.first);
    const auto gpu = process == process_names_.end() ? std::nullopt : gpu_in(process->second);
    if (!gpu || lower(lane.name).find("stream") == std::string::npos) continue;
    lane.kind = "device";
    lane.device = fmt::format("cuda:{}", *gpu);
    lane.stream = track.second;
    lane.thread.reset();
    is_device[number] = true;
  }
  for (record::Activity& activity : run_.activities()) {
    const record::ActivityName& name = run_.name_of(activity);
    if (name.kind != kUnsaid) continue;
    const std::string text = name.text;
    const std::string plain = lower(text);
    const bool runs_on_device = is_device.contains(activity.lane);
    const bool is_copy = plain.find("memcpy") != std::string::npos;
    activity.name = run_.name(!runs_on_device ? "range" : is_copy ? "copy" : "kernel", text);
  }
  for (const auto& [device, name] : device_names_) {
    run_.add_environment(fmt::format("device cuda:{}", device), core::printable(name));
  }
  run_.add_multiprocessors(multiprocessors_);
  if (rank_ && world_size_ && *rank_ >= 0 && *rank_ < *world_size_) {
    run_.add_fact({.key = "rank", .value = static_cast<double>(*rank_), .unit = "", .text = ""});
    run_.add_fact({.key = "world_size", .value = static_cast<double>(*world_size_), .unit = "", .text = ""});
  }
}

}  // namespace rooflm::foreign
