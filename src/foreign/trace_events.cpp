// Events of Chrome traces as rows of a run.
#include "foreign/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "foreign/missing_work.h"

namespace rooflm::foreign {
namespace {

/// Events that nobody said anything about: what they are is known when lanes have names.
constexpr std::string_view kUnsaid = "unsaid";

struct Category {
  std::string_view name, kind;
};
/// In lower case: PyTorch 1.8 to 1.11 wrote "Kernel", "Memcpy", "Runtime", "Operator".
constexpr Category kCategories[] = {{"kernel", "kernel"},
                                    {"concurrent_kernel", "kernel"},
                                    {"gpu_memcpy", "copy"},
                                    {"memcpy", "copy"},
                                    {"gpu_memset", "memset"},
                                    {"memset", "memset"},
                                    {"cuda_runtime", "api"},
                                    {"cuda_driver", "api"},
                                    {"runtime", "api"},
                                    {"xpu_runtime", "api"},
                                    {"xpu_driver", "api"},
                                    {"mtia_runtime", "api"},
                                    {"privateuse1_runtime", "api"},
                                    {"privateuse1_driver", "api"},
                                    {"cuda_sync", "sync"},
                                    {"overhead", "overhead"},
                                    {"cpu_op", "op"},
                                    {"operator", "op"},
                                    {"user_annotation", "range"},
                                    {"python_function", "range"},
                                    {"python", "range"},
                                    {"module", "range"},
                                    {"gpu_user_annotation", "range"}};

/// "" for categories that nobody knows.
std::string_view kind_of(std::string_view category) {
  const auto* const found = std::ranges::find(kCategories, category, &Category::name);
  if (found != std::end(kCategories)) return found->kind;
  return category.empty() || category == "trace" ? kUnsaid : std::string_view();
}

/// Operators have namespaces or are nodes of autograd; the profilers of then gave ranges of users the same
/// category.
bool is_operator_name(std::string_view name) {
  while (!name.empty() && std::isdigit(static_cast<unsigned char>(name.back())) != 0) name.remove_suffix(1);
  return name.find("::") != std::string_view::npos || name.ends_with("Backward");
}

/// As CUDA, its driver and HIP name their calls: "cudaLaunchKernel", "cuLaunchKernel", "hipLaunchKernel".
bool is_call_name(std::string_view name) {
  for (const std::string_view prefix : {"cuda", "cu", "hip"}) {
    if (name.starts_with(prefix) && name.size() > prefix.size() &&
        std::isupper(static_cast<unsigned char>(name[prefix.size()])) != 0) {
      return true;
    }
  }
  return false;
}

/// 7 of "stream 7".
std::optional<std::int64_t> last_number(std::string_view text) {
  const auto digits = text.find_last_not_of("0123456789");
  std::int64_t number = 0;
  const char* const begin = text.data() + (digits == std::string_view::npos ? 0 : digits + 1);
  const auto parsed = std::from_chars(begin, text.data() + text.size(), number);
  return parsed.ec == std::errc() ? std::optional(number) : std::nullopt;
}

/// Of what ran on an accelerator of Meta (MTIA): all of it has one category.
std::string_view kind_on_mtia(std::string_view name) {
  if (name == "dma_request") return "copy";
  return name.starts_with("event_") ? "range" : "kernel";  // event_wait, event_record
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
      {"HtoD", 1}, {"DtoH", 2}, {"DtoD", 8}, {"HtoH", 9}, {"PtoP", 10},
      {"H2D", 1},  {"D2H", 2},  {"D2D", 8},  {"H2H", 9},  {"P2P", 10}};
  for (const auto& [word, kind] : kWays) {
    if (name.find(word) != std::string_view::npos) return copy_text(kind);
  }
  return copy_text(0);
}

/// 1 of "/device:GPU:1" and "GPU 1"; nothing of names without a GPU.
std::optional<std::int64_t> gpu_in(std::string_view name) {
  const auto at = name.find("GPU");
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = name.substr(at + 3);
  if (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest[0])) == 0) rest.remove_prefix(1);
  std::int64_t number = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return std::clamp<std::int64_t>(number, 0, kMostTraceDevices - 1);
}

/// 13 of "/device:GPU:0/stream:13 Compute".
std::optional<std::int64_t> stream_in(std::string_view name) {
  constexpr std::string_view kStream = "stream:";
  const auto at = name.find(kStream);
  if (at == std::string_view::npos) return std::nullopt;
  const auto end = name.find_first_not_of("0123456789", at + kStream.size());
  return last_number(name.substr(0, end));
}

}  // namespace

void RawEvent::set_text(std::string_view key, const std::string& text) {
  if (key == "ph") phase = text;
  if (key == "cat") category = lower(text);
  if (key == "name") name = text;
  if (key == "pid") process_text = text;
  if (key == "tid") thread_text = text;
}

void RawEvent::set_number(std::string_view key, std::optional<std::int64_t> value) {
  if (key == "pid") process = value;
  if (key == "tid") thread = value;
  if (key == "id") flow = value;
}

void RawEvent::set_arg_text(std::string_view key, const std::string& text) {
  if (key == "name" || key == "labels") arg_name = text;
  if (key == "Call stack" && !text.empty()) {
    inputs += fmt::format(R"({}"stack":{})", inputs.empty() ? "" : ",", nlohmann::json(text).dump());
  }
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
  if (key == "correlation" || key == "correlation_id") correlation = whole;
  if (key == "bytes") bytes = whole;
  if (key == "step") step = whole;
  if (key == "Bytes") memory_bytes = whole;
  if (key == "Addr") address = whole;
  if (key == "Device Type") device_type = whole;
  if (key == "Device Id") device_id = whole;
  if (key == "Total Allocated") total_allocated = whole;
  if (key == "Total Reserved") total_reserved = whole;
  if (key == "rank") rank = whole;
  if (key == "registers per thread" && whole) member("registers", fmt::format("{}", *whole));
  if (key == "shared memory" && whole) member("shared_dynamic", fmt::format("{}", *whole));
  if (key == "graph node id" && whole) member("node", fmt::format("{}", *whole));
  if (key == "est. achieved occupancy %" && value >= 0 && value <= kPercent) {
    member("occupancy", fmt::format("{:.4g}", value / kPercent));
  }
}

void RawEvent::set_arg_list(std::string_view key, const std::string& json) {
  constexpr std::pair<std::string_view, std::string_view> kInputs[] = {
      {"Input Dims", "shapes"}, {"Input dims", "shapes"}, {"Input type", "dtypes"}};
  for (const auto& [input, member] : kInputs) {
    if (key == input) inputs += fmt::format(R"({}"{}":{})", inputs.empty() ? "" : ",", member, json);
  }
  if (key == "grid" || key == "block")
    extra += fmt::format(R"({}"{}":{})", extra.empty() ? "" : ",", key, json);
}

TraceEvents::Track TraceEvents::track_of(const RawEvent& event) {
  const auto number = [&](const std::optional<std::int64_t>& value, const std::string& text) {
    if (value) return *value;
    std::int64_t parsed = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (!text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size()) return parsed;
    if (text.empty()) return std::int64_t{0};
    constexpr std::int64_t kFirst = 1'000'000'000;
    const auto [known, is_new] =
        text_numbers_.try_emplace(text, kFirst + static_cast<std::int64_t>(text_numbers_.size()));
    if (is_new) texts_[known->second] = text;
    return known->second;
  };
  return {number(event.process, event.process_text), number(event.thread, event.thread_text)};
}

std::string TraceEvents::process_label(std::int64_t process) const {
  const auto rank = ranks_.find(process);
  if (rank != ranks_.end()) return fmt::format("rank {}", rank->second);
  const auto text = texts_.find(process);
  const auto name = process_names_.find(process);
  const std::string own = text != texts_.end() ? text->second : "";
  return own.empty() ? name == process_names_.end() ? fmt::format("{}", process) : name->second
                     : own + (name == process_names_.end() ? "" : " " + name->second);
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
  } else {
    count_unread(event);
  }
}

void TraceEvents::count_unread(const RawEvent& event) {
  const std::string& phase = event.phase;
  if (phase.empty()) return run_.count("events without \"ph\" were left out");
  // Arrows of flows: correlations say the same, but in traces from before Kineto.
  if (phase == "s" || phase == "t" || phase == "f") {
    if (event.category != "cpu_to_cuda" || !event.flow || !event.start_ns) return;
    auto& [from, to] = arrows_[*event.flow];
    (phase == "s" ? from : to) = Moment{track_of(event), *event.start_ns};
    return;
  }
  if (phase == "i" || phase == "I" || phase == "R") {
    // Kineto says so how long it looked.
    if (event.name.starts_with("Record Window") || event.name.starts_with("Iteration Start")) return;
    return run_.count("marks (instant events) were left out");
  }
  if (phase == "C") return run_.count("values of counters (phase \"C\") were left out");
  if (phase == "b" || phase == "n" || phase == "e") {
    return run_.count("asynchronous events (phases \"b\", \"n\", \"e\") were left out");
  }
  run_.count("events of other phases were left out");
}

void TraceEvents::take_slice(const RawEvent& event) {
  if (!event.start_ns || !event.duration_ns)
    return run_.count("events without a time or a duration were left out");
  std::int64_t end_ns = 0;
  if (__builtin_add_overflow(*event.start_ns, *event.duration_ns, &end_ns)) {
    return run_.count("events with impossible times were left out");
  }
  for (const std::string_view type : {"xpu", "mtia", "privateuse1"}) {
    if (event.category.starts_with(type) && event.category.find('_') == type.size())
      device_types_.insert(std::string(type));
  }
  // The span of the whole trace, which Kineto adds for viewers.
  if (event.category == "trace" && event.name.starts_with("PyTorch Profiler")) return;
  const bool is_on_mtia = event.category == "mtia_ccp_events";
  std::string_view kind = is_on_mtia ? kind_on_mtia(event.name) : kind_of(event.category);
  if (kind.empty()) {
    // What has a device and a stream ran there, whatever it is called.
    kind = event.device && event.stream ? "kernel" : "range";
    if (unknown_categories_.size() < 8) unknown_categories_.insert(event.category);
    run_.count(fmt::format("events have an unknown category{} and were taken as {}",
                           unknown_categories_.contains(event.category)
                               ? fmt::format(" ({})", core::printable(event.category))
                               : "",
                           kind == "kernel" ? "kernels" : "ranges of the host"));
  } else if (event.category == "operator" && !is_operator_name(event.name)) {
    kind = "range";
  }
  const Track track = track_of(event);
  if (event.rank) ranks_[track.first] = *event.rank;
  record::Activity made{.start_ns = *event.start_ns, .end_ns = end_ns, .step = event.step};
  const bool is_annotation = event.category == "gpu_user_annotation" || (is_on_mtia && kind == "range");
  if (is_device_kind(kind) || is_annotation) {
    const std::int64_t device = event.device.value_or(
        event.process_text.empty() ? track.first : last_number(event.process_text).value_or(0));
    const std::int64_t stream =
        event.stream ? *event.stream : last_number(event.thread_text).value_or(track.second);
    const char* what = is_annotation ? "annotations of stream" : "stream";
    const std::int64_t number =
        device < 0 || device >= kMostTraceDevices ? 0 : device;  // else it is no number of one
    made.lane = run_.lane(fmt::format("{} {} {}", what, device, stream),
                          {.kind = "device",
                           .device = fmt::format("cuda:{}", number),
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
  if (kind == "op" && !event.inputs.empty()) made.extra = "{" + event.inputs + "}";
  if (!run_.add(std::move(made))) return;
  processes_.push_back(track.first);
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

/// XLA's traces have no categories: there names of processes and threads say what runs on a device. Old
/// traces of PyTorch (before Kineto) call their processes "CPU functions" and "CUDA functions".
void TraceEvents::name_lanes() {
  for (const auto& [track, number] : host_lanes_) {
    record::Lane& lane = run_.lane(number);
    const auto thread = thread_names_.find(track);
    if (thread != thread_names_.end()) lane.name = thread->second;
    const std::string process = process_label(track.first);
    const bool is_old = process == "CUDA functions";
    const auto gpu = is_old ? std::optional(std::clamp<std::int64_t>(track.second, 0, kMostTraceDevices - 1))
                            : gpu_in(process);
    if (!gpu) continue;
    lane.kind = "device";
    lane.device = fmt::format("cuda:{}", *gpu);
    lane.thread.reset();
    const bool is_stream = is_old || thread == thread_names_.end() ||
                           lower(lane.name).find("stream") != std::string::npos ||
                           process.find("/stream:") != std::string::npos;
    // What XLA derives from streams ("XLA Modules", "XLA Ops") and TensorFlow adds up runs only once.
    if (!is_stream || process.find("stream:all") != std::string::npos) continue;
    lane.stream = is_old ? 0 : stream_in(process).value_or(track.second);
    if (is_old) lane.name = "kernels";
    device_lanes_.insert(number);
  }
}

/// Of the events of which nobody said what they are.
void TraceEvents::find_kinds() {
  for (std::size_t i = 0; i < run_.activities().size(); ++i) {
    record::Activity& activity = run_.activities()[i];
    const record::ActivityName& name = run_.name_of(activity);
    if (name.kind != kUnsaid) continue;
    const std::string text = name.text;
    const std::string plain = lower(text);
    if (device_lanes_.contains(activity.lane)) {
      const bool is_copy = plain.find("memcpy") != std::string::npos;
      const bool is_memset = plain.find("memset") != std::string::npos;
      activity.name = run_.name(is_copy     ? "copy"
                                : is_memset ? "memset"
                                            : "kernel",
                                is_copy     ? copy_of(text)
                                : is_memset ? "memset"
                                            : text);
    } else {
      const bool is_operator = process_label(processes_[i]) == "CPU functions" && is_operator_name(text);
      activity.name = run_.name(is_operator ? "op" : is_call_name(text) ? "api" : "range", text);
    }
  }
}

/// Traces from before Kineto have arrows from operators to the kernels that they started: an operator and its
/// kernels get one correlation, the number of its first arrow.
void TraceEvents::follow_arrows() {
  if (arrows_.empty()) return;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> at;  // by lane and start, the shortest
  auto& activities = run_.activities();
  for (std::size_t i = 0; i < activities.size(); ++i) {
    const auto [known, is_new] = at.try_emplace({activities[i].lane, activities[i].start_ns}, i);
    if (!is_new && activities[i].end_ns < activities[known->second].end_ns) known->second = i;
  }
  const auto event_at = [&](const std::optional<Moment>& moment) -> record::Activity* {
    const auto lane = moment ? host_lanes_.find(moment->first) : host_lanes_.end();
    const auto found = lane == host_lanes_.end() ? at.end() : at.find({lane->second, moment->second});
    return found == at.end() ? nullptr : &activities[found->second];
  };
  for (const auto& [number, ends] : arrows_) {
    record::Activity* from = event_at(ends.first);
    record::Activity* to = event_at(ends.second);
    if (from == nullptr || to == nullptr || run_.lane(to->lane).kind != "device") continue;
    if (!from->correlation) from->correlation = number;
    to->correlation = from->correlation;
  }
}

void TraceEvents::finish() {
  for (const auto& [track, open] : open_) {
    if (!open.empty()) run_.count("events without an end were left out", open.size());
  }
  name_lanes();
  find_kinds();
  follow_arrows();
  // PyTorch calls devices of HIP cuda, too; only what the trace says is another type.
  const std::string type = device_types_.size() == 1 ? *device_types_.begin() : "cuda";
  run_.call_devices(type);
  const MergedRanks ranks = separate_ranks(
      run_, processes_, [this](std::int64_t process) { return process_label(process); }, where_);
  if (!ranks.is_one()) rank_.reset();
  add_memory(ranks);
  say_missing_work(run_);
  for (const auto& [device, name] : device_names_) {
    run_.device_names[fmt::format("{}:{}", type, device)] = core::printable(name);
  }
  run_.add_multiprocessors(multiprocessors_);
  if (rank_ && world_size_ && *rank_ >= 0 && *rank_ < *world_size_) {
    run_.add_fact({.key = "rank", .value = static_cast<double>(*rank_), .unit = "", .text = ""});
    run_.add_fact({.key = "world_size", .value = static_cast<double>(*world_size_), .unit = "", .text = ""});
  }
}

}  // namespace rooflm::foreign
