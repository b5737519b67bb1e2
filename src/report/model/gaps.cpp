// The longest stretches in which a device ran no kernel.
#include "report/model/gaps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "report/model/host_stacks.h"
#include "report/model/traced_kernels.h"

namespace rooflm::report {
namespace {

/// Of one device, in the order of time.
void add_gaps(std::vector<Gap>& all, const DeviceTimes& times, const std::string& device) {
  const Idle* before = nullptr;
  for (const Idle& idle : times.idle) {
    const DeviceStep* step = times.find(idle.step);
    if (step == nullptr || step->kind != kTraced) continue;
    const bool goes_on = before != nullptr && before->step == idle.step && before->next == idle.next;
    before = &idle;
    if (!goes_on) {
      all.push_back({.step = idle.step,
                     .start_ns = idle.start_ns,
                     .end_ns = idle.end_ns,
                     .step_start_ns = step->begin_ns,
                     .device = device,
                     .next = idle.next});
    }
    Gap& gap = all.back();
    gap.start_ns = std::min(gap.start_ns, idle.start_ns);
    gap.end_ns = std::max(gap.end_ns, idle.end_ns);
    gap.cause_s.at(static_cast<std::size_t>(idle.cause)) +=
        static_cast<double>(idle.end_ns - idle.start_ns) * 1e-9;
  }
}

/// Something of a host's thread that reaches into a gap, as a whole: what is around it begins earlier or ends
/// later.
struct HostSpan {
  std::int64_t start_ns = 0, end_ns = 0;
  const std::string* text = nullptr;
};

/// Says of each gap what the host was in.
class HostFinder {
 public:
  HostFinder(const RunData& run, std::vector<Gap>& gaps) : run_(run), names_(run), gaps_(gaps) {
    for (const record::Lane& lane : run.lanes) {
      if (lane.kind == "host") hosts_.insert(lane.lane);
    }
    for (std::size_t i = 0; i < gaps.size(); ++i) {
      order_.push_back(i);
      longest_ns_ = std::max(longest_ns_, gaps[i].end_ns - gaps[i].start_ns);
    }
    std::ranges::sort(order_, {}, [&](std::size_t i) { return gaps[i].start_ns; });
    find_threads();
  }

  void find() {
    std::vector<std::map<std::int64_t, std::int64_t>> lines(
        gaps_.size());  // nanoseconds by name of the stack
    std::vector<std::vector<HostSpan>> spans(gaps_.size());
    for (const record::Activity& activity : run_.activities) {
      if (!hosts_.contains(activity.lane) || is_step(activity)) continue;
      for_gaps(activity, [&](std::size_t i, std::int64_t /*from*/, std::int64_t /*to*/) {
        spans[i].push_back({activity.start_ns, activity.end_ns, &names_.text(activity)});
      });
    }
    for (const record::Activity& sample : run_.stack_samples) {
      for_gaps(sample, [&](std::size_t i, std::int64_t from, std::int64_t to) {
        lines[i][sample.name] += 1 + to - from;
      });
    }
    for (std::size_t i = 0; i < gaps_.size(); ++i) {
      name_host(gaps_[i], std::move(spans[i]));
      name_line(gaps_[i], lines[i]);
    }
  }

 private:
  /// Of each gap the thread that launched what came next; of those at the end of a step the one that
  /// launches most.
  void find_threads() {
    std::unordered_map<std::int64_t, std::vector<std::size_t>> wanted;  // gaps by correlation
    for (std::size_t i = 0; i < gaps_.size(); ++i) {
      const auto& next = gaps_[i].next;
      if (next && run_.activities[*next].correlation)
        wanted[*run_.activities[*next].correlation].push_back(i);
    }
    threads_.assign(gaps_.size(), -1);
    std::map<std::int64_t, std::size_t> launches;
    for (const record::Activity& activity : run_.activities) {
      if (!activity.correlation || names_.kind(activity) != "api") continue;
      ++launches[activity.lane];
      const auto gaps = wanted.find(*activity.correlation);
      if (gaps == wanted.end()) continue;
      for (const std::size_t i : gaps->second) threads_[i] = activity.lane;
    }
    if (launches.empty()) return;
    const auto most =
        std::ranges::max_element(launches, {}, &std::pair<const std::int64_t, std::size_t>::second);
    for (std::int64_t& thread : threads_) thread = thread < 0 ? most->first : thread;
  }

  /// A range that says no more than that a step went on.
  [[nodiscard]] bool is_step(const record::Activity& activity) const {
    if (names_.kind(activity) != "range") return false;
    const std::string& text = names_.text(activity);
    return text == kStepRange || text.starts_with("step,") || text.starts_with("ProfilerStep#");
  }

  /// Calls `take` for each gap that the activity reaches into, of its own thread, with what it has of it.
  template <class Take>
  void for_gaps(const record::Activity& activity, const Take& take) const {
    auto place = std::ranges::upper_bound(order_, activity.end_ns, {},
                                          [&](std::size_t i) { return gaps_[i].start_ns; });
    while (place != order_.begin()) {
      const std::size_t i = *--place;
      if (gaps_[i].start_ns + longest_ns_ < activity.start_ns) break;
      if (threads_[i] >= 0 && activity.lane != threads_[i]) continue;
      const std::int64_t from = std::max(activity.start_ns, gaps_[i].start_ns);
      const std::int64_t to = std::min(activity.end_ns, gaps_[i].end_ns);
      if (from < to || (activity.start_ns == activity.end_ns && from == to)) take(i, from, to);
    }
  }

  /// The innermost of each moment counts; around the one that has most of them stand others.
  static void name_host(Gap& gap, std::vector<HostSpan> spans) {
    std::ranges::stable_sort(spans, [](const HostSpan& a, const HostSpan& b) {
      return std::pair(a.start_ns, -a.end_ns) < std::pair(b.start_ns, -b.end_ns);
    });
    std::map<std::vector<const std::string*>, std::int64_t> own_ns;  // by what is open, outermost first
    std::vector<HostSpan> open;
    std::int64_t at = gap.start_ns;
    const auto pass = [&](std::int64_t time_ns) {
      const std::int64_t until = std::min(time_ns, gap.end_ns);
      if (until <= at) return;
      std::vector<const std::string*> path;
      for (const HostSpan& span : open) path.push_back(span.text);
      own_ns[path] += until - at;
      at = until;
    };
    for (std::size_t i = 0; i <= spans.size(); ++i) {
      const std::int64_t start = i < spans.size() ? spans[i].start_ns : gap.end_ns;
      while (!open.empty() && open.back().end_ns <= start) {
        pass(open.back().end_ns);
        open.pop_back();
      }
      pass(start);
      if (i < spans.size()) open.push_back(spans[i]);
    }
    const auto most = std::ranges::max_element(own_ns, {}, [](const auto& entry) { return entry.second; });
    if (most == own_ns.end() || most->first.empty()) return;  // mostly outside of all that was recorded
    gap.host = *most->first.back();
    std::vector<std::string> around;
    for (std::size_t i = 0; i + 1 < most->first.size(); ++i) around.push_back(*most->first[i]);
    gap.within = fmt::format("{}", fmt::join(around, " > "));
  }

  void name_line(Gap& gap, const std::map<std::int64_t, std::int64_t>& stacks) const {
    if (stacks.empty()) return;
    const auto most =
        std::ranges::max_element(stacks, {}, &std::pair<const std::int64_t, std::int64_t>::second);
    const auto name = std::ranges::find(run_.activity_names, most->first, &record::ActivityName::name);
    if (name == run_.activity_names.end()) return;
    const std::vector<std::string> frames = frames_of(name->text);
    if (!frames.empty()) gap.line = line_of(frames);
  }

  const RunData& run_;
  ActivityNames names_;
  std::vector<Gap>& gaps_;
  std::set<std::int64_t> hosts_;       ///< lanes
  std::vector<std::int64_t> threads_;  ///< lane of each gap; -1: not known
  std::vector<std::size_t> order_;     ///< gaps by their start
  std::int64_t longest_ns_ = 0;
};

}  // namespace

IdleCause Gap::cause() const {
  return static_cast<IdleCause>(std::ranges::max_element(cause_s) - cause_s.begin());
}

const std::string& line_of(const std::vector<std::string>& frames) {
  const auto script = std::find_if(frames.rbegin(), frames.rend(), [](const std::string& frame) {
    return frame.find(".py:") != std::string::npos;
  });
  return script != frames.rend() ? *script : frames.back();
}

std::vector<Gap> gaps_of(const RunData& run, std::size_t most) {
  const TracedKernels& kernels = traced_kernels(run);
  const std::vector<std::string> devices = devices_of(run, kernels);
  std::vector<Gap> gaps;
  if (devices.size() == 1) add_gaps(gaps, kernels.times(), devices.front());
  for (std::size_t i = 0; i < devices.size() && devices.size() > 1; ++i)
    add_gaps(gaps, device_times(run, devices[i]), devices[i]);
  std::ranges::stable_sort(
      gaps, [](const Gap& a, const Gap& b) { return a.end_ns - a.start_ns > b.end_ns - b.start_ns; });
  gaps.resize(std::min(gaps.size(), most));
  if (!gaps.empty()) HostFinder(run, gaps).find();
  return gaps;
}

}  // namespace rooflm::report
