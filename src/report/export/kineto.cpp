// A Chrome trace as Kineto (torch.profiler) writes it. docs/export.md says what of a record is where.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <limits>
#include <map>
#include <set>

#include "report/export/export.h"
#include "report/export/kineto_args.h"
#include "report/export/memory_places.h"
#include "report/model/device_times.h"

namespace rooflm::report {
namespace {

/// Tracks of one stream or thread whose events overlap are this far apart.
constexpr std::int64_t kTrackStride = 100'000'000;

/// Microseconds with three decimals: nanoseconds, exactly.
std::string microseconds(std::int64_t ns) {
  const std::int64_t magnitude = ns < 0 ? -ns : ns;
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", magnitude / 1000, magnitude % 1000);
}

/// A slice of a track.
struct Slice {
  std::int64_t start_ns = 0, end_ns = 0;
  std::string name, category, args;
  const TraceEvent* event = nullptr;
  std::int64_t id =
      0;  ///< "External id": of the op or step that it is, or in which it was called; 0 without any
};

/// Where a slice is shown.
struct Track {
  std::int64_t process = 0, thread = 0;
  // clang-tidy 14 takes the comparison with zero that a defaulted <=> makes for a pointer.
  auto operator<=>(const Track&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The number of c10::DeviceType.
int device_type(std::string_view device) {
  constexpr std::pair<std::string_view, int> kTypes[] = {{"hip:", 6},         {"xla:", 9},  {"xpu:", 12},
                                                         {"mps:", 13},        {"hpu:", 15}, {"mtia:", 19},
                                                         {"privateuse1:", 20}};
  for (const auto& [type, number] : kTypes) {
    if (device.starts_with(type)) return number;
  }
  return is_gpu(device) ? 1 : 0;
}

std::string_view category_of(const TraceEvent& event) {
  if (is_kernel_event(event)) return "kernel";
  if (event.kind == "copy") return "gpu_memcpy";
  if (event.kind == "memset") return "gpu_memset";
  if (event.kind == "op") return "cpu_op";
  if (event.kind == "sync") return "cuda_sync";
  if (event.kind == "overhead") return "overhead";
  if (event.kind == "communication") return "gpu_user_annotation";  // beside its kernel
  // Of plans: idle times by their cause, and passes of a pipeline.
  if (event.kind == "idle" || event.kind == "pass") return "gpu_user_annotation";
  if (event.kind == "range") return event.lane->kind == "device" ? "gpu_user_annotation" : "user_annotation";
  const bool is_driver = event.name.size() > 2 && event.name.starts_with("cu") &&
                         std::isupper(static_cast<unsigned char>(event.name[2])) != 0;
  return is_driver ? "cuda_driver" : "cuda_runtime";
}

/// Readers join by the plain names of calls: "cudaLaunchKernel", not "cudaLaunchKernel_v7000".
std::string_view plain_call(std::string_view name) {
  const auto version = name.rfind("_v");
  if (version == std::string_view::npos || version + 2 == name.size()) return name;
  const std::string_view digits = name.substr(version + 2);
  return std::ranges::all_of(digits, [](unsigned char c) { return std::isdigit(c) != 0; })
             ? name.substr(0, version)
             : name;
}

std::string copy_name(const TraceEvent& event) {
  constexpr std::string_view kWays[] = {"Unknown", "HtoD (Host -> Device)", "DtoH (Device -> Host)"};
  const int kind = copy_kind(event.name);
  if (kind == 8) return "Memcpy DtoD (Device -> Device)";
  if (kind == 9) return "Memcpy HtoH (Host -> Host)";
  if (kind == 10) return "Memcpy PtoP (Device -> Device)";
  return fmt::format("Memcpy {}", kWays[kind]);
}

/// The list of events of a trace, with commas between them.
class EventList {
 public:
  explicit EventList(const TextSink& sink) : sink_(sink) {}
  void put(const std::string& json) {
    sink_(is_first_ ? "\n    " : ",\n    ");
    sink_(json);
    is_first_ = false;
  }

 private:
  const TextSink& sink_;
  bool is_first_ = true;
};

/// The events of one run: of the only one, or of one of several ranks.
class KinetoWriter {
 public:
  /// `numbers` of the devices of all ranks.
  KinetoWriter(const ExportSource& source, const RankRun& rank, EventList& list, DeviceNumbers& numbers)
      : source_(source),
        rank_(rank),
        list_(list),
        trace_(*rank.run, source.scope),
        collectives_(trace_, rank_place_of(*rank.run)) {
    for (const TraceEvent& event : trace_.events()) {
      if (event.lane->kind == "device") devices_.emplace(event.lane->device, 0);
    }
    for (auto& [device, number] : devices_) number = numbers.of(device, rank.rank);
    memory_ = placed_memory(*rank.run).changes;
    for (const MemoryChange& change : memory_) {
      if (is_gpu(change.device)) memory_numbers_[change.device] = numbers.of(change.device, rank.rank);
    }
  }

  /// What is known of its devices, by their numbers.
  [[nodiscard]] std::map<std::int64_t, std::string> properties() const {
    std::map<std::int64_t, std::string> of_device;
    for (const auto& [device, number] : devices_) {
      const std::int64_t sms = multiprocessors_of(*rank_.run, device);
      of_device[number] = fmt::format(R"({{"id": {}, "name": {}{}}})", number,
                                      json_quoted(device_title(source_.file, device)),
                                      sms > 0 ? fmt::format(R"(, "numSms": {})", sms) : "");
    }
    return of_device;
  }

  /// What the format could not show, in sentences.
  std::vector<std::string> write() {
    const std::string name = is_one_of_many() ? fmt::format("rank {}", rank_.rank) : "rooflm";
    const std::int64_t place = 5'000'000 + (is_one_of_many() ? kRankStride * rank_.rank : 0);
    write_process(process(), name, "CPU", place);
    for (const auto& [device, number] : devices_)
      write_process(process_of(device), name, fmt::format("GPU {}", number),
                    place + 1 + own_numbers_.of(device));
    collect();
    identify();
    for (const auto& [track, slices] : tracks_) write_track(track, slices);
    write_flows();
    write_memory();
    std::vector<std::string> notes = trace_.notes();
    if (moved_ > 0) {
      notes.push_back(
          fmt::format("{}{} events overlap others of their stream or thread and are on tracks of their own",
                      is_one_of_many() ? what() + ": " : "", moved_));
    }
    if (of_other_steps_ > 0)
      notes.push_back(
          fmt::format("{} memory events belong to other steps and are left out", of_other_steps_));
    if (events_ == 0) notes.push_back(fmt::format("{} has no events: the trace is empty", what()));
    return notes;
  }

 private:
  /// Numbers of processes of a rank, of which the last is its host.
  static constexpr std::int64_t kRankStride = 1000;

  /// Then each event is part of a step; beside what was traced, the record has steps itself.
  [[nodiscard]] bool is_simulated() const { return rank_.run->run.kind == record::kPlanKind; }
  [[nodiscard]] bool is_one_of_many() const { return source_.ranks.size() > 1; }
  [[nodiscard]] std::string what() const {
    return is_one_of_many() ? fmt::format("rank {}", rank_.rank) : fmt::format("run {}", rank_.run->run.id);
  }
  /// Numbers of calls of several ranks differ.
  [[nodiscard]] std::uint64_t own_id(std::int64_t id) const {
    const auto above = is_one_of_many() ? static_cast<std::uint64_t>(rank_.rank) << 32U : 0;
    return static_cast<std::uint64_t>(id) + above;
  }
  [[nodiscard]] std::int64_t process() const {
    return is_one_of_many() ? kRankStride * (rank_.rank + 1) - 1 : trace_.process();
  }
  /// Links have no device: they are shown beside the first one.
  [[nodiscard]] std::int64_t number_of(const std::string& device) const {
    const auto known = devices_.find(device);
    if (known != devices_.end()) return known->second;
    return devices_.empty() ? device_number(device) : devices_.begin()->second;
  }
  [[nodiscard]] std::int64_t process_of(const std::string& device) {
    const bool is_link = !devices_.contains(device) && !devices_.empty();
    return own_numbers_.of(is_link ? devices_.begin()->first : device) +
           (is_one_of_many() ? kRankStride * rank_.rank : 0);
  }
  /// On the clock of the first rank.
  [[nodiscard]] std::string moment(std::int64_t ns) const { return microseconds(ns + rank_.offset_ns); }

  void put(const std::string& json) { list_.put(json); }

  void write_process(std::int64_t pid, std::string_view name, const std::string& label, std::int64_t place) {
    const auto metadata = [&](std::string_view what, const std::string& args) {
      put(fmt::format(R"({{"ph": "M", "name": "{}", "pid": {}, "tid": 0, "ts": 0.000, "args": {{{}}}}})",
                      what, pid, args));
    };
    metadata("process_name", fmt::format(R"("name": "{}")", name));
    metadata("process_labels", fmt::format(R"("labels": "{}")", label));
    metadata("process_sort_index", fmt::format(R"("sort_index": {})", place));
  }

  [[nodiscard]] Track track_of(const record::Lane& lane) {
    if (lane.kind == "host") return {process(), trace_.thread_of(lane)};
    return {process_of(lane.device), lane.stream.value_or(lane.lane)};
  }

  [[nodiscard]] std::string args_of(const TraceEvent& event) const {
    std::string args;
    const auto add = [&](const std::string& text) { args += args.empty() ? text : ", " + text; };
    if (event.op != nullptr) add(op_args(*event.op));
    // Readers count annotations that have a stream or a correlation as kernels.
    const bool is_annotation = category_of(event) == "gpu_user_annotation";
    if (event.lane->kind == "device" && !is_annotation) {
      add(fmt::format(R"("device": {}, "context": 1, "stream": {})", number_of(event.lane->device),
                      event.lane->stream.value_or(event.lane->lane)));
    }
    if (event.correlation && !is_annotation)
      add(fmt::format(R"("correlation": {})", own_id(*event.correlation)));
    if (is_kernel_event(event))
      args += launch_args(event, multiprocessors_of(*rank_.run, event.lane->device)) + collectives_.of(event);
    if (event.bytes) {
      add(fmt::format(R"("bytes": {})", *event.bytes));
      if (event.duration_ns() > 0 && !is_annotation) {
        args += fmt::format(R"x(, "memory bandwidth (GB/s)": {:.6g})x",
                            static_cast<double>(*event.bytes) / static_cast<double>(event.duration_ns()));
      }
    }
    if (event.step) add(fmt::format(R"("step": {})", *event.step));
    return args;
  }

  /// All slices by track: events, ops and phases as threads saw them, steps.
  void collect() {
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> steps;
    bool is_main_of_ops = false;
    for (const TraceEvent& event : trace_.events()) {
      if (event.kind == "memory") continue;
      Slice slice{event.start_ns, event.end_ns, std::string(event.name), std::string(category_of(event)),
                  args_of(event), &event};
      if (event.kind == "range" && event.name == kStepRange && event.step) {
        slice.name = fmt::format("{}{}", kProfilerStep, *event.step);
      } else if (event.kind == "copy") {
        slice.name = copy_name(event);
      } else if (event.kind == "memset") {
        slice.name = "Memset (Device)";
      } else if (event.kind == "api") {
        slice.name = plain_call(event.name);
      }
      if ((event.kind == "op" || is_simulated()) && event.step) {
        const auto [step, is_new] = steps.try_emplace(*event.step, event.start_ns, event.end_ns);
        step->second = {std::min(step->second.first, event.start_ns),
                        std::max(step->second.second, event.end_ns)};
        if (main_ == nullptr || (event.kind == "op" && !is_main_of_ops)) main_ = event.lane;
        is_main_of_ops = is_main_of_ops || event.kind == "op";
      }
      tracks_[track_of(*event.lane)].push_back(std::move(slice));
      lanes_.try_emplace(track_of(*event.lane), event.lane);
    }
    for (const auto& [step, span] : steps) {
      tracks_[track_of(*main_)].push_back({span.first, span.second, fmt::format("{}{}", kProfilerStep, step),
                                           "user_annotation", "", nullptr});
    }
    for (const TraceRange& range : trace_.ranges()) {
      const bool is_event = range.is_recorded || (range.op != nullptr && range.work.empty());
      if (range.thread == nullptr || is_event) continue;
      tracks_[track_of(*range.thread)].push_back({range.start_ns, range.end_ns, range.name,
                                                  range.op != nullptr ? "cpu_op" : "user_annotation",
                                                  range.op != nullptr ? op_args(*range.op) : "", nullptr});
    }
  }

  /// Sorts the slices of each track, and gives ops and steps of host threads numbers, each its own. A call
  /// has that of the innermost one around it, and what it started has that of the call.
  void identify() {
    std::map<std::int64_t, std::int64_t> of_call;  // by correlation
    std::int64_t last = 0;
    for (auto& [track, slices] : tracks_) {
      std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
        return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
      });
      std::vector<const Slice*> open;
      for (Slice& slice : slices) {
        std::erase_if(open, [&](const Slice* around) { return around->end_ns <= slice.start_ns; });
        if (slice.category == "cpu_op" || slice.name.starts_with(kProfilerStep)) {
          slice.id = ++last;
          open.push_back(&slice);
        } else if (slice.event != nullptr && slice.event->kind == "api") {
          slice.id = open.empty() ? 0 : open.back()->id;
          if (slice.event->correlation) of_call.try_emplace(*slice.event->correlation, slice.id);
        }
      }
    }
    for (auto& [track, slices] : tracks_) {
      for (Slice& slice : slices) {
        if (slice.event == nullptr || !is_device_work(*slice.event) || !slice.event->correlation) continue;
        const auto call = of_call.find(*slice.event->correlation);
        if (call != of_call.end()) slice.id = call->second;
      }
    }
  }

  static bool has_id(const Slice& slice) {
    return slice.id != 0 ||
           (slice.event != nullptr && (slice.event->kind == "api" || is_device_work(*slice.event)));
  }

  /// Slices of one track lie in each other or apart: viewers draw nothing else.
  void write_track(const Track& track, const std::vector<Slice>& slices) {
    std::vector<std::vector<std::int64_t>> open(1);  // ends of what goes on, innermost last, for each track
    const record::Lane* lane = lanes_.contains(track) ? lanes_.at(track) : main_;
    const auto name_track = [&](std::size_t place) {
      const std::string name =
          lane == nullptr || lane->name.empty() ? fmt::format("track {}", track.thread) : lane->name;
      put(fmt::format(
          R"({{"ph": "M", "name": "thread_name", "pid": {}, "tid": {}, "ts": 0.000, "args": {{"name": {}}}}})",
          track.process, track.thread + static_cast<std::int64_t>(place) * kTrackStride,
          json_quoted(place == 0 ? name : fmt::format("{} ({})", name, place + 1))));
    };
    name_track(0);
    // Steps stay on their thread, where readers look for what they launched: what overlaps one moves.
    std::vector<std::pair<std::int64_t, std::int64_t>> steps;
    for (const Slice& slice : slices) {
      if (slice.name.starts_with(kProfilerStep)) steps.emplace_back(slice.start_ns, slice.end_ns);
    }
    const auto reaches_into_step = [&](const Slice& slice) {
      const auto next =
          std::ranges::upper_bound(steps, slice.start_ns, {}, &std::pair<std::int64_t, std::int64_t>::first);
      return next != steps.end() && next->first < slice.end_ns && next->second > slice.end_ns &&
             !slice.name.starts_with(kProfilerStep);
    };
    for (const Slice& slice : slices) {
      std::size_t place = 0;
      for (;; ++place) {
        if (place == open.size()) {
          open.emplace_back();
          name_track(place);
        }
        std::vector<std::int64_t>& ends = open[place];
        while (!ends.empty() && ends.back() <= slice.start_ns) ends.pop_back();
        if (!ends.empty() && ends.back() < slice.end_ns) continue;
        if (place == 0 && reaches_into_step(slice)) continue;
        ends.push_back(slice.end_ns);
        break;
      }
      if (place > 0) ++moved_;
      const std::int64_t tid = track.thread + static_cast<std::int64_t>(place) * kTrackStride;
      if (slice.event != nullptr && slice.event->correlation) places_[slice.event] = {track.process, tid};
      const std::string id = has_id(slice)
                                 ? fmt::format(R"("External id": {}{})", slice.id == 0 ? 0 : own_id(slice.id),
                                               slice.args.empty() ? "" : ", ")
                                 : "";
      put(fmt::format(
          R"({{"ph": "X", "cat": "{}", "name": {}, "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{{}{}}}}})",
          slice.category, json_quoted(slice.name), track.process, tid, moment(slice.start_ns),
          microseconds(slice.end_ns - slice.start_ns), id, slice.args));
      ++events_;
    }
  }

  /// An arrow from its call to each part of the device's work. The first one of a call has the number of
  /// their correlation; the others, of a graph, have numbers of their own.
  void write_flows() {
    std::set<std::int64_t> begun;
    std::int64_t next = 0;
    for (const TraceEvent& event : trace_.events()) next = std::max(next, event.correlation.value_or(0));
    const auto arrow = [&](const char* phase, const TraceEvent& event, std::int64_t id) {
      const Track& place = places_.at(&event);
      put(fmt::format(
          R"({{"ph": "{}", "id": {}, "pid": {}, "tid": {}, "ts": {}, "cat": "ac2g", "name": "ac2g"{}}})",
          phase, own_id(id), place.process, place.thread, moment(event.start_ns),
          *phase == 'f' ? R"(, "bp": "e")" : ""));
    };
    for (const TraceEvent& event : trace_.events()) {
      const TraceEvent* call = is_device_work(event) ? trace_.call_of(event) : nullptr;
      if (call == nullptr) continue;
      const std::int64_t id = begun.insert(*event.correlation).second ? *event.correlation : ++next;
      arrow("s", *call, id);
      arrow("f", event, id);
    }
  }

  /// What was taken and given back, at the times that are known: its own, or that of its op in the first
  /// step. Of one step what happened during it.
  void write_memory() {
    std::map<std::int64_t, std::int64_t> starts;
    for (const TraceEvent& event : trace_.events()) {
      if (event.op != nullptr) starts.try_emplace(event.op->op.op, event.start_ns);
    }
    // Ops may run beside each other, in another order than memory was planned in: that order counts.
    std::map<std::string, std::int64_t> times;  // by device
    for (const MemoryChange& change : memory_) {
      const record::MemoryEvent& event = *change.event;
      const auto start = event.op ? starts.lower_bound(*event.op) : starts.end();
      const bool has_time = event.time_ns != 0 || !event.op;
      if (has_time && source_.scope.step && !trace_.is_within(event.time_ns)) {
        ++of_other_steps_;
        continue;
      }
      if (!has_time && start == starts.end() && times.empty()) continue;
      std::int64_t& time =
          times.try_emplace(change.device, std::numeric_limits<std::int64_t>::min()).first->second;
      if (has_time) {
        time = std::max(time, event.time_ns);
      } else if (start != starts.end()) {
        time = std::max(time, start->second);
      }
      put_memory(time, change);
    }
  }

  void put_memory(std::int64_t time_ns, const MemoryChange& change) {
    const std::string& device = change.device;
    const auto number = memory_numbers_.find(device);
    const std::int64_t id = number == memory_numbers_.end() ? -1 : number->second;
    put(fmt::format(
        R"({{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": {}, "tid": {}, "ts": {}, )"
        R"("args": {{"Device Type": {}, "Device Id": {}, "Bytes": {}, "Addr": {}, "Total Allocated": {}}}}})",
        process(), process(), moment(time_ns), device_type(device), id, change.bytes, change.address,
        change.live_bytes));
    ++events_;
    put(fmt::format(R"({{"ph": "C", "name": {}, "pid": {}, "ts": {}, "args": {{"bytes": {}}}}})",
                    json_quoted(fmt::format("memory {}", is_gpu(device) ? device : "cpu")), process(),
                    moment(time_ns), change.live_bytes));
  }

  const ExportSource& source_;
  RankRun rank_;
  EventList& list_;
  Trace trace_;
  CollectiveArgs collectives_;
  std::map<std::string, std::int64_t> devices_, memory_numbers_;  ///< their numbers among those of all ranks
  DeviceNumbers own_numbers_;                                     ///< of this rank alone
  std::vector<MemoryChange> memory_;
  std::map<Track, std::vector<Slice>> tracks_;
  std::map<Track, const record::Lane*> lanes_;
  std::map<const TraceEvent*, Track> places_;
  const record::Lane* main_ = nullptr;
  std::size_t events_ = 0, moved_ = 0, of_other_steps_ = 0;
};

}  // namespace

std::vector<std::string> write_kineto(const ExportSource& source, const TextSink& sink) {
  std::vector<RankRun> ranks(source.ranks.begin(), source.ranks.end());
  if (ranks.size() < 2) ranks = {{}};
  ranks.front().run = &source.run;  // which has kernels, too, where its rank has a run of ops alone
  const RankPlace place = ranks.size() > 1
                              ? RankPlace{ranks.front().rank, static_cast<std::int64_t>(ranks.size())}
                              : rank_place_of(source.run);
  EventList list(sink);
  DeviceNumbers numbers;
  std::deque<KinetoWriter> writers;
  std::vector<std::string> notes;
  for (const RankRun& rank : ranks) {
    const bool is_last = &rank == &ranks.back();
    if (source.scope.step && !Trace::has_step(*rank.run, *source.scope.step) &&
        !(is_last && writers.empty())) {
      notes.push_back(
          fmt::format("rank {} has no events of step {}: it is left out", rank.rank, *source.scope.step));
      continue;
    }
    writers.emplace_back(source, rank, list, numbers);
  }
  std::map<std::int64_t, std::string> properties;
  for (const KinetoWriter& writer : writers) properties.merge(writer.properties());
  // Readers take the n-th for device n.
  std::string devices;
  for (std::int64_t n = 0; !properties.empty() && n <= properties.rbegin()->first; ++n) {
    const auto known = properties.find(n);
    devices += n == 0 ? "\n    " : ",\n    ";
    devices += known != properties.end()
                   ? known->second
                   : fmt::format(R"({{"id": {}, "name": {}}})", n,
                                 json_quoted(device_title(source.file, fmt::format("cuda:{}", n))));
  }
  // Readers look for "rank": followed by a space.
  sink(
      fmt::format("{{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [{}],\n"
                  "  \"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}}},\n"
                  "  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": {},\n  \"traceEvents\": [",
                  devices, place.rank, place.ranks, source.file.epoch_utc_ns));
  for (KinetoWriter& writer : writers) {
    for (std::string& note : writer.write()) {
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
    }
  }
  sink("\n  ],\n");
  sink(fmt::format("  \"traceName\": {}\n}}\n", json_quoted(source.run.run.label)));
  const std::string kept = source.run.text("rank_steps");
  if (ranks.size() > 1 && !kept.empty()) notes.push_back(kept);
  return notes;
}

}  // namespace rooflm::report
