// A run of a program that is not ours.
#include "foreign/foreign_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_set>

#include "core/statistics.h"

namespace rooflm::foreign {
namespace {

/// Nanoseconds since 1970 have 61 bits now; what is beyond 62 is no time, and sums stay within 64.
constexpr std::int64_t kMostTime = std::int64_t{1} << 62U;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 52U;

std::int64_t add_saturated(std::int64_t& sum, std::int64_t bytes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 61U;
  return sum = std::clamp(sum + bytes, -kMost, kMost);
}

/// Nobody says how many kernels a module launches: what was seen is no law.
record::Fact unknown_launches(const std::vector<record::Op>& ops) {
  record::Fact fact{
      .key = "unknown_launches", .value = static_cast<double>(ops.size()), .unit = "ops", .text = ""};
  for (const record::Op& op : ops) fact.text += fmt::format("{}{}", fact.text.empty() ? "" : ",", op.op);
  return fact;
}

}  // namespace

std::int64_t ForeignRun::name(std::string_view kind, std::string_view text) {
  std::string key(kind);
  key += '\0';
  key += text;
  const auto [entry, is_new] =
      name_numbers_.try_emplace(std::move(key), static_cast<std::int64_t>(names_.size()));
  if (is_new) names_.push_back({.name = entry->second, .kind = std::string(kind), .text = std::string(text)});
  return entry->second;
}

std::int64_t ForeignRun::lane(const std::string& key, const record::Lane& made) {
  const auto [entry, is_new] = lane_keys_.try_emplace(key, static_cast<std::int64_t>(lanes_.size()));
  if (is_new) {
    lanes_.push_back(made);
    lanes_.back().lane = entry->second;
  }
  return entry->second;
}

std::optional<std::int64_t> ForeignRun::find_lane(const std::string& key) const {
  const auto found = lane_keys_.find(key);
  return found == lane_keys_.end() ? std::nullopt : std::optional(found->second);
}

bool ForeignRun::add(record::Activity activity) {
  if (activity.end_ns < activity.start_ns) {
    count("events that end before they start were left out");
    return false;
  }
  if (activity.start_ns <= -kMostTime || activity.end_ns >= kMostTime) {
    count("events with impossible times were left out");
    return false;
  }
  if (activity.bytes && (*activity.bytes <= -kMostBytes || *activity.bytes >= kMostBytes)) {
    count("sizes that no device has were left out");
    activity.bytes.reset();
  }
  activity.id = static_cast<std::int64_t>(activities_.size());
  last_ns_ = activities_.empty() ? activity.end_ns : std::max(last_ns_, activity.end_ns);
  activities_.push_back(std::move(activity));
  return true;
}

void ForeignRun::add_memory(std::int64_t time_ns, std::int64_t bytes, std::optional<std::int64_t> address,
                            const std::string& device, std::optional<std::int64_t> op) {
  if (time_ns <= -kMostTime || time_ns >= kMostTime || bytes == 0 || bytes <= -kMostBytes ||
      bytes >= kMostBytes) {
    return count("allocations with impossible times or sizes were left out");
  }
  memory_.push_back({.op = op, .bytes = bytes, .time_ns = time_ns, .device = device, .address = address});
}

void ForeignRun::add_memory_before(std::int64_t bytes, std::int64_t address, const std::string& device) {
  if (bytes <= 0 || bytes >= kMostBytes) {
    return count("allocations with impossible times or sizes were left out");
  }
  memory_before_.push_back({.bytes = bytes, .device = device, .address = address});
}

void ForeignRun::add_multiprocessors(const std::map<std::int64_t, std::int64_t>& of_devices) {
  std::int64_t first = 0;
  for (const auto& [device, count] : of_devices) {
    if (count <= 0 || count == first) continue;
    add_fact({.key = first == 0 ? "multiprocessors" : fmt::format("multiprocessors cuda:{}", device),
              .value = static_cast<double>(count),
              .unit = "",
              .text = ""});
    if (first == 0) first = count;
  }
}

void ForeignRun::call_devices(std::string_view type) {
  for (record::Lane& lane : lanes_) {
    if (lane.device.starts_with("cuda:")) lane.device = fmt::format("{}{}", type, lane.device.substr(4));
  }
}

void ForeignRun::check_correlations() {
  std::unordered_set<std::int64_t> calls;
  for (const record::Activity& activity : activities_) {
    if (name_of(activity).kind == "api" && activity.correlation) calls.insert(*activity.correlation);
  }
  if (calls.empty()) return;  // calls were not traced
  const std::int64_t first = *std::ranges::min_element(calls);
  for (const record::Activity& activity : activities_) {
    const bool is_started =
        lanes_[static_cast<std::size_t>(activity.lane)].kind == "device" && activity.correlation;
    if (is_started && !calls.contains(*activity.correlation)) {
      count(*activity.correlation < first
                ? "kernels and copies were launched before all calls of the trace (they are kept)"
                : "kernels and copies have a correlation that no call has (they are kept)");
    }
  }
}

/// By time; live bytes are counted here, device by device. What is given back without having been taken was
/// there before the trace began.
void ForeignRun::add_up_memory() {
  std::ranges::stable_sort(memory_, {}, &record::MemoryEvent::time_ns);
  using Place = std::pair<std::string, std::int64_t>;
  std::map<Place, std::int64_t> sizes;
  std::set<Place> seen;
  std::vector<record::MemoryEvent> before;
  for (record::MemoryEvent& event : memory_before_) {
    const Place place{event.device, event.address.value_or(0)};
    if (!sizes.try_emplace(place, event.bytes).second) {
      count("blocks from before the trace are listed twice at one address: the second was left out");
      continue;
    }
    seen.insert(place);
    before.push_back(std::move(event));
  }
  memory_before_.clear();
  std::vector<record::MemoryEvent> kept;
  for (record::MemoryEvent& event : memory_) {
    if (event.address) {
      const Place place{event.device, *event.address};
      const auto taken = sizes.find(place);
      const bool is_first = seen.insert(place).second;
      if (event.bytes > 0) {
        if (taken != sizes.end()) {  // its end was not seen
          count("allocations take the place of others that were not freed; those end there");
          record::MemoryEvent end = event;
          end.bytes = -taken->second;
          kept.push_back(end);
        }
        sizes[place] = event.bytes;
      } else if (taken == sizes.end()) {
        record::MemoryEvent begin = event;
        begin.bytes = -event.bytes;
        if (!is_first)
          count(
              "frees of memory that was already free: its allocation was not seen and is placed right before "
              "the free");
        (is_first ? before : kept).push_back(begin);
      } else {
        if (taken->second != -event.bytes) {
          count("frees of another size than the allocation count with the allocation's");
          event.bytes = -taken->second;
        }
        sizes.erase(taken);
      }
    }
    kept.push_back(event);
  }
  // Frees without an address say only how much: what is more than was taken was there before.
  std::map<std::string, std::int64_t> live;
  std::map<std::string, std::int64_t> least;
  for (const record::MemoryEvent& event : before) add_saturated(live[event.device], event.bytes);
  for (const record::MemoryEvent& event : kept) {
    std::int64_t& bytes = live[event.device];
    add_saturated(bytes, event.bytes);
    least[event.device] = std::min(least[event.device], bytes);
  }
  for (const auto& [device, bytes] : least) {
    if (bytes < 0) before.push_back({.bytes = -bytes, .device = device});
  }
  if (!before.empty() && !owners_) count("allocations are from before the trace began", before.size());
  for (record::MemoryEvent& event : before) {
    event.time_ns = memory_.empty() ? 0 : memory_.front().time_ns;
    if (owners_) event.op = -1;
  }
  before.insert(before.end(), kept.begin(), kept.end());
  memory_ = std::move(before);
  live.clear();
  std::int64_t seq = 0;
  for (record::MemoryEvent& event : memory_) {
    event.seq = seq++;
    event.live_bytes = add_saturated(live[event.device], event.bytes);
  }
}

bool ForeignRun::is_device_work(const record::Activity& activity) const {
  const std::string& kind = name_of(activity).kind;
  return kind == "kernel" || kind == "copy" || kind == "memset";
}

/// How long each phase of the observed steps took on the device: from the end of what ran before to the end
/// of each of its kernels. What comes before the first one is the phase "wait". Work of no op counts as part
/// of what ran before it, or else after it.
void ForeignRun::add_phases(const std::map<std::int64_t, std::vector<record::Event>>& observed,
                            std::vector<record::Sample>& samples) {
  struct Ends {
    std::int64_t start_ns = 0, end_ns = 0;
    std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();  // when the first kernel began
    std::vector<std::pair<std::int64_t, std::string>> kernels;         // when each ended, its phase
  };
  std::map<std::int64_t, Ends> steps;
  for (const record::Activity& activity : activities_) {
    if (!activity.step || !observed.contains(*activity.step)) continue;
    Ends& step = steps[*activity.step];
    if (name_of(activity).kind == "range" && name_of(activity).text == "step") {
      step.start_ns = activity.start_ns;
      step.end_ns = activity.end_ns;
    } else if (is_device_work(activity) && activity.end_ns > activity.start_ns) {
      step.first_ns = std::min(step.first_ns, activity.start_ns);
      step.kernels.emplace_back(activity.end_ns,
                                activity.op ? ops_.at(static_cast<std::size_t>(*activity.op)).phase : "");
    }
  }
  for (auto& [number, step] : steps) {
    std::ranges::sort(step.kernels);
    if (step.kernels.empty()) continue;
    std::map<std::string, std::int64_t> phases;
    // Some of its work may run beside the step before it, or after it.
    std::int64_t at_ns = std::clamp(step.first_ns, step.start_ns, step.end_ns);
    phases["wait"] = at_ns - step.start_ns;
    const auto known =
        std::ranges::find_if(step.kernels, [](const auto& kernel) { return !kernel.second.empty(); });
    std::string current = known == step.kernels.end() ? "" : known->second;
    for (const auto& [kernel_end_ns, own] : step.kernels) {
      const std::int64_t end_ns = std::min(kernel_end_ns, step.end_ns);
      if (!own.empty()) current = own;
      phases[current] += std::max<std::int64_t>(0, end_ns - at_ns);
      at_ns = std::max(at_ns, end_ns);
    }
    for (const auto& [phase, ns] : phases) {
      if (ns <= 0 || phase.empty()) continue;
      samples.push_back(
          {.step = number, .phase = phase, .seconds = static_cast<double>(ns) * 1e-9, .kind = "traced"});
    }
  }
}

/// What no step did, such as a program that JAX ran before its loop, has no time to hold beside a roof, and
/// is no part of those of its phase and the step.
void ForeignRun::leave_out_roofs(const std::function<bool(const record::Op&)>& is_idle) {
  std::map<std::string, std::string> phases;  // by subject
  for (const record::Op& op : ops_) {
    if (is_idle(op)) phases[fmt::format("op:{}", op.op)] = "phase:" + op.phase;
  }
  std::map<std::pair<std::string, std::string>, double> less;  // by subject and quantity
  for (const record::Prediction& row : predictions_) {
    const auto phase = phases.find(row.subject);
    if (phase == phases.end()) continue;
    less[{phase->second, row.quantity}] += row.value;
    less[{"step", row.quantity}] += row.value;
  }
  std::erase_if(predictions_, [&](const auto& row) { return phases.contains(row.subject); });
  for (record::Prediction& row : predictions_) {
    const auto known = less.find({row.subject, row.quantity});
    if (known != less.end()) row.value = std::max(0.0, row.value - known->second);
  }
}

/// What the kernels, copies and fills of each op took in each step. Work of a step that is warm-up, or of
/// none, is no op's.
std::vector<record::Event> ForeignRun::events_of(std::vector<record::Sample>& samples) {
  if (ops_.empty() || samples.empty()) {
    for (record::Activity& activity : activities_) activity.op.reset();
    return {};
  }
  std::map<std::int64_t, std::vector<record::Event>> of_step;
  for (const record::Sample& sample : samples) {
    if (sample.kind == "warmup") continue;
    std::vector<record::Event>& events = of_step[sample.step];
    for (const record::Op& op : ops_) events.push_back({.step = sample.step, .op = op.op});
  }
  std::unordered_set<const record::Event*> begun;
  for (record::Activity& activity : activities_) {
    const auto events = activity.step ? of_step.find(*activity.step) : of_step.end();
    if (events == of_step.end()) activity.op.reset();
    if (!activity.op) continue;
    record::Event& event = events->second.at(static_cast<std::size_t>(*activity.op));
    const bool is_first = begun.insert(&event).second;
    event.start_ns = is_first ? activity.start_ns : std::min(event.start_ns, activity.start_ns);
    event.device_ns += activity.end_ns - activity.start_ns;
    if (name_of(activity).kind == "kernel") ++ops_.at(static_cast<std::size_t>(*activity.op)).launches;
  }
  leave_out_roofs([&](const record::Op& op) {
    return std::ranges::none_of(of_step, [&](const auto& step) {
      return step.second.at(static_cast<std::size_t>(op.op)).device_ns > 0;
    });
  });
  const auto steps = static_cast<std::int64_t>(of_step.size());
  for (record::Op& op : ops_) op.launches = steps == 0 ? 0 : (op.launches + steps / 2) / steps;
  add_phases(of_step, samples);
  std::vector<record::Event> all;
  for (const auto& [step, events] : of_step) all.insert(all.end(), events.begin(), events.end());
  return all;
}

/// A collective is of the step of its kernel.
void ForeignRun::give_communication_its_step() {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> steps;  // by correlation and start
  for (const record::Activity& activity : activities_) {
    if (activity.step && activity.correlation && name_of(activity).kind == "kernel") {
      steps.try_emplace({*activity.correlation, activity.start_ns}, *activity.step);
    }
  }
  for (record::Activity& activity : activities_) {
    if (!activity.correlation || name_of(activity).kind != "communication") continue;
    const auto step = steps.find({*activity.correlation, activity.start_ns});
    if (step != steps.end()) activity.step = step->second;
  }
}

/// A step has one time: where its number stands twice, what is known of the device counts.
void ForeignRun::leave_out_known_steps(const std::vector<record::Sample>& known,
                                       std::vector<record::Sample>& timed) {
  std::set<std::int64_t> numbers;
  for (const record::Sample& sample : known) numbers.insert(sample.step);
  const std::size_t twice =
      std::erase_if(timed, [&](const record::Sample& sample) { return !numbers.insert(sample.step).second; });
  if (twice > 0) count("timed steps have the number of another step and were left out", twice);
}

std::string ForeignRun::device() const {
  std::string first;
  for (const record::Lane& lane : lanes_) {
    if (lane.kind == "device" && (first.empty() || lane.device < first)) first = lane.device;
  }
  return first.empty() && !memory_.empty() ? memory_.front().device : first;
}

std::vector<std::string> ForeignRun::write(record::Writer& writer) {
  if (!is_read_back_) {
    check_correlations();
    leave_out_other_clocks();
    leave_out_late_ends();
    begin_near_zero();
    add_up_memory();
    timed_ = take_timed_steps(*this);
  }
  std::vector<record::Sample> timed = timed_;
  const std::size_t timed_count = timed.size();
  std::vector<record::Sample> samples = find_steps(*this);
  const std::size_t ahead = leave_out_steps_ahead(*this, timed);
  mark_warmup(samples);
  name_slow_steps(*this, samples);
  const std::vector<record::Event> events = events_of(samples);
  leave_out_known_steps(samples, timed);
  samples.insert(samples.end(), timed.begin(), timed.end());
  give_communication_its_step();
  if (!clock.empty()) {
    add_fact({.key = "clock", .value = {}, .unit = "ns", .text = fmt::format("{} {}", clock, clock_ns)});
  }
  if (owners_ && !events.empty()) tensors_ = name_blocks(memory_, ops_, *owners_);
  if (tensors_.empty()) {
    for (record::MemoryEvent& event : memory_) event.op.reset();
  }
  for (const record::Environment& row : environment_) writer.add(row);
  // A trace names all devices of its machine; where some have worked in it, others are of other processes.
  const bool has_any = std::ranges::find(lanes_, "device", &record::Lane::kind) != lanes_.end();
  for (const auto& named : device_names) {
    const bool has_worked = std::ranges::any_of(lanes_, [&](const record::Lane& lane) {
      return lane.kind == "device" && lane.device == named.first;
    });
    if (has_worked || !has_any) writer.add(record::Environment{"device " + named.first, named.second});
  }
  if (epoch_utc_ns != 0) writer.set_epoch(epoch_utc_ns);
  record::Run run{.label = label, .kind = "foreign"};
  if (!device().empty()) run.config.set("device", device());
  const std::int64_t id = writer.begin_run(run);
  writer.add(id, std::span<const record::Lane>(lanes_));
  writer.add(id, std::span<const record::ActivityName>(names_));
  writer.add(id, std::span<const record::Activity>(activities_));
  writer.add(id, std::span<const record::KernelWork>(kernel_works_));
  writer.add(id, std::span<const record::Tensor>(tensors_));
  writer.add(id, std::span<const record::MemoryEvent>(memory_));
  if (!events.empty()) {
    writer.add(id, std::span<const record::Op>(ops_));
    writer.add(id, std::span<const record::Prediction>(predictions_));
  }
  writer.add(id, std::span<const record::Event>(events));
  writer.add(id, std::span<const record::Sample>(samples));
  writer.add(id, std::span<const record::Gauge>(gauges_));
  if (!events.empty()) add_fact(unknown_launches(ops_));
  for (const record::Fact& fact : facts_) writer.add(id, fact);
  writer.end_run(id, status);
  std::vector<std::string> notes;
  const auto steps = std::ranges::count(samples, std::string("step"), &record::Sample::phase);
  notes.push_back(
      fmt::format("{} activities, {} memory events, {} steps", activities_.size(), memory_.size(), steps));
  if (timed_count > 0) {
    notes.push_back(
        fmt::format("{} of the steps were only timed, without device activities (--trace-every 1 traces all)",
                    timed_count));
  }
  if (ahead > 0) {
    notes.push_back(fmt::format(
        "{} of these had ended on the host before the device could have run them, and were left out", ahead));
  }
  notes.insert(notes.end(), said_.begin(), said_.end());
  for (const auto& [what, times] : counted_) notes.push_back(fmt::format("{} {}", times, what));
  return notes;
}

void mark_warmup(std::vector<record::Sample>& samples) {
  if (samples.size() < 4) return;
  std::vector<double> seconds;
  for (const record::Sample& sample : samples) seconds.push_back(sample.seconds);
  constexpr double kLonger = 1.25;
  const double most = kLonger * core::median(seconds);
  for (std::size_t i = 0; i < samples.size() / 2 && samples[i].seconds > most; ++i)
    samples[i].kind = "warmup";
}

std::string copy_text(std::int64_t kind) {
  switch (kind) {
    case 1:
      return "copy host to device";
    case 2:
      return "copy device to host";
    case 8:
      return "copy device to device";
    case 9:
      return "copy host to host";
    case 10:
      return "copy device to peer";
    default:
      return "copy";
  }
}

}  // namespace rooflm::foreign
