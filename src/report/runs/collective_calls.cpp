// Collectives of recorded programs on one clock.
#include "report/runs/collective_calls.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/units.h"

namespace rooflm::report {
namespace {

constexpr std::string_view kCommunication = "communication";  // kind of activities

bool is_among_parts(const std::string& op) {
  return op == "AllGather" || op == "ReduceScatter" || op == "AlltoAll";
}

/// Members of an activity's extra that may be missing.
class Extra {
 public:
  explicit Extra(const std::string& text) {
    try {
      json_ = core::parse_json_object(text, "activity.extra", "the collective");
    } catch (const core::InputError&) {  // a record of somebody else
      json_ = nlohmann::json::object();
    }
  }
  [[nodiscard]] std::int64_t number(const char* key, std::int64_t fallback) const {
    const auto found = json_.find(key);
    return found != json_.end() && found->is_number_integer() ? found->get<std::int64_t>() : fallback;
  }
  [[nodiscard]] std::string text(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && found->is_string() ? found->get<std::string>() : "";
  }
  [[nodiscard]] bool has(const char* key) const { return json_.contains(key); }

 private:
  nlohmann::json json_;
};

/// Which clock a run counts on, and where its zero is: "BOOT NANOSECONDS".
struct Clock {
  std::string name{};
  std::int64_t zero_ns = 0;
};

Clock clock_of(const RunData& run) {
  const record::Fact* fact = run.fact("clock");
  if (fact == nullptr) return {};
  const std::size_t at = fact->text.find(' ');
  Clock clock{.name = fact->text.substr(0, at)};
  if (at != std::string::npos) {
    std::from_chars(fact->text.data() + at + 1, fact->text.data() + fact->text.size(), clock.zero_ns);
  }
  return clock;
}

/// Zeros of all runs' clocks in seconds after the earliest of them.
std::vector<double> zeros_of(const RecordSet& set, bool& has_common_clock) {
  std::vector<Clock> clocks;
  std::set<std::string> names;
  for (const RunData& run : set.runs) {
    clocks.push_back(clock_of(run));
    names.insert(clocks.back().name);
  }
  has_common_clock = names.size() == 1 && !names.contains("");
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < clocks.size(); ++i) {
    if (!has_common_clock) clocks[i].zero_ns = set.files.at(set.runs[i].file).epoch_utc_ns;
    first_ns = std::min(first_ns, clocks[i].zero_ns);
  }
  std::vector<double> zeros;
  for (const Clock& clock : clocks) {
    zeros.push_back((static_cast<double>(clock.zero_ns) - static_cast<double>(first_ns)) * core::kNano);
  }
  return zeros;
}

bool has_communication(const RunData& run) {
  return std::ranges::any_of(run.activity_names,
                             [](const record::ActivityName& name) { return name.kind == kCommunication; });
}

void add_calls(const RunData& run, std::size_t number, double zero_s, CollectiveCalls& all) {
  std::map<std::int64_t, const record::ActivityName*> names;
  for (const record::ActivityName& name : run.activity_names) {
    if (name.kind == kCommunication) names[name.name] = &name;
  }
  if (names.empty()) return;
  std::vector<const record::Activity*> found;
  std::set<std::int64_t> steps;
  for (const record::Activity& activity : run.activities) {
    if (!names.contains(activity.name)) continue;
    found.push_back(&activity);
    if (activity.step) steps.insert(*activity.step);
  }
  all.steps[number] = static_cast<std::int64_t>(steps.size());
  // Those of one kernel, by its call and start.
  std::map<std::pair<std::int64_t, std::int64_t>, double> bytes_of_kernel;
  const auto kernel_of = [](const record::Activity& one) {
    return std::pair(one.correlation.value_or(-1), one.start_ns);
  };
  for (const record::Activity* one : found) {
    bytes_of_kernel[kernel_of(*one)] +=
        static_cast<double>(std::max<std::int64_t>(1, one->bytes.value_or(0)));
  }
  for (const record::Activity* one : found) {
    const Extra extra(one->extra);
    const std::int64_t bytes = std::max<std::int64_t>(0, one->bytes.value_or(0));
    const double share =
        static_cast<double>(std::max<std::int64_t>(1, bytes)) / bytes_of_kernel[kernel_of(*one)];
    all.calls.push_back({.run = number,
                         .op = names[one->name]->text,
                         .dtype = extra.text("dtype"),
                         .communicator = extra.text("communicator"),
                         .sequence = extra.number("sequence", -1),
                         .ranks = std::max<std::int64_t>(0, extra.number("ranks", 0)),
                         .rank = extra.number("rank", -1),
                         .is_message = extra.has("peer"),
                         .has_kernel = !extra.has("host"),
                         .is_counted = steps.empty() || one->step.has_value(),
                         .bytes = bytes,
                         .start_ns = one->start_ns,
                         .start_s = zero_s + static_cast<double>(one->start_ns) * core::kNano,
                         .time_s = (static_cast<double>(one->end_ns) - static_cast<double>(one->start_ns)) *
                                   core::kNano * share});
  }
}

/// What all ranks of a communicator call together waits for the last of them.
void find_waiting(std::vector<CollectiveCall>& calls) {
  std::map<std::tuple<std::string, std::string, std::int64_t>, std::vector<CollectiveCall*>> together;
  for (CollectiveCall& call : calls) {
    if (call.has_kernel && !call.is_message && call.sequence >= 0 && !call.communicator.empty()) {
      together[{call.communicator, call.op, call.sequence}].push_back(&call);
    }
  }
  for (auto& [key, members] : together) {
    std::set<std::size_t> runs;
    for (const CollectiveCall* call : members) runs.insert(call->run);
    if (runs.size() < 2 || runs.size() < members.size()) continue;  // of one rank, or counted from anew
    CollectiveCall* last =
        *std::ranges::max_element(members, {}, [](const auto* call) { return call->start_s; });
    for (CollectiveCall* call : members) {
      call->waiting_s = std::clamp(last->start_s - call->start_s, 0.0, call->time_s);
      last->is_last = last->is_last || *call->waiting_s >= core::kNano;
    }
  }
}

}  // namespace

double CollectiveCall::size() const {
  const auto own = static_cast<double>(bytes);
  return is_among_parts(op) && ranks > 0 ? own * static_cast<double>(ranks) : own;
}

std::optional<double> CollectiveCall::bus_factor() const {
  if (ranks <= 0 || !has_kernel) return std::nullopt;
  if (is_message) return 1;
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  if (op == "AllReduce") return 2 * share;
  return is_among_parts(op) ? share : 1;
}

std::vector<CollectiveCall> collective_calls(const RunData& run) {
  CollectiveCalls all;
  all.steps.resize(1);
  add_calls(run, 0, 0, all);
  return std::move(all.calls);
}

CollectiveCalls collective_calls(const RecordSet& set) {
  CollectiveCalls all;
  all.steps.resize(set.runs.size());
  if (std::ranges::none_of(set.runs, has_communication)) return all;
  all.zeros_s = zeros_of(set, all.has_common_clock);
  for (std::size_t i = 0; i < set.runs.size(); ++i) add_calls(set.runs[i], i, all.zeros_s[i], all);
  // Ranks leave out warm-ups of their own, so that a call in a step may meet one before another rank's steps.
  find_waiting(all.calls);
  std::erase_if(all.calls, [](const CollectiveCall& call) { return !call.is_counted; });
  return all;
}

}  // namespace rooflm::report
