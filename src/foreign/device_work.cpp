// What ran on devices, in the order in which the host asked for it.
#include "foreign/device_work.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace rooflm::foreign {
namespace {

/// The number of the node of a graph that a kernel is; -1 where it is none.
std::int64_t node_of(const record::Activity& kernel) {
  constexpr std::string_view kKey = R"("node":)";
  const std::size_t at = kernel.extra.find(kKey);
  return at == std::string::npos ? -1 : std::atoll(kernel.extra.c_str() + at + kKey.size());
}

/// A call of the runtime; of traces from before Kineto an operator, which has no correlation elsewhere.
bool is_launch_kind(std::string_view kind) { return kind == "api" || kind == "op"; }

/// Which work was launched before the trace began: no call has its correlation, every call has a later one,
/// and it starts before all work of its stream whose call is known. Correlations count calls.
class LaunchedBefore {
 public:
  LaunchedBefore(const std::unordered_map<std::int64_t, std::size_t>& calls,
                 const std::vector<record::Activity>& activities)
      : calls_(calls) {
    for (const auto& [correlation, call] : calls) first_call_ = std::min(first_call_, correlation);
    for (const record::Activity& activity : activities) {
      begin_ns_ = std::min(begin_ns_, activity.start_ns);
      if (!activity.correlation || !calls.contains(*activity.correlation)) continue;
      const auto [known, is_new] = known_from_.try_emplace(activity.lane, activity.start_ns);
      if (!is_new) known->second = std::min(known->second, activity.start_ns);
    }
  }

  [[nodiscard]] bool operator()(const record::Activity& work) const {
    if (!work.correlation || calls_.contains(*work.correlation) || *work.correlation >= first_call_)
      return false;
    const auto known = known_from_.find(work.lane);
    return known == known_from_.end() || work.start_ns < known->second;
  }
  /// A moment before all that the trace holds.
  [[nodiscard]] std::int64_t before_ns() const { return begin_ns_ - 1; }

 private:
  const std::unordered_map<std::int64_t, std::size_t>& calls_;
  std::unordered_map<std::int64_t, std::int64_t> known_from_{};  ///< lane, start of the first one
  std::int64_t first_call_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t begin_ns_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

std::vector<Launched> device_work(ForeignRun& run) {
  const std::vector<record::Activity>& activities = run.activities();
  // A call of the runtime and the call of the driver that it makes have one correlation: the outer one began
  // first.
  std::unordered_map<std::int64_t, std::size_t> calls;
  for (std::size_t i = 0; i < activities.size(); ++i) {
    if (!activities[i].correlation || !is_launch_kind(run.name_of(activities[i]).kind)) continue;
    const auto [call, is_new] = calls.try_emplace(*activities[i].correlation, i);
    if (!is_new && activities[i].start_ns < activities[call->second].start_ns) call->second = i;
  }
  const LaunchedBefore is_from_before(calls, activities);
  std::vector<Launched> work;
  for (std::size_t i = 0; i < activities.size(); ++i) {
    const record::Activity& activity = activities[i];
    if (run.lane(activity.lane).kind != "device" || !run.is_device_work(activity)) continue;
    const auto found = activity.correlation ? calls.find(*activity.correlation) : calls.end();
    const record::Activity& call = found == calls.end() ? activity : activities[found->second];
    const bool is_kernel = run.name_of(activity).kind == "kernel";
    const bool is_before = is_from_before(activity);
    const std::int64_t asked_ns = is_before ? is_from_before.before_ns() : call.start_ns;
    work.push_back({.activity = i,
                    .asked_ns = asked_ns,
                    .asked_until_ns = found == calls.end() ? asked_ns : call.end_ns,
                    .lane = call.lane,
                    .node = node_of(activity),
                    .start_ns = activity.start_ns,
                    .end_ns = activity.end_ns,
                    .name = activity.name,
                    .kernel_ns = is_kernel ? activity.end_ns - activity.start_ns : 0,
                    .is_kernel = is_kernel,
                    .is_of_graph = found != calls.end() &&
                                   run.name_of(call).text.find("GraphLaunch") != std::string::npos,
                    .is_from_before = is_before});
  }
  std::ranges::sort(work, {}, [](const Launched& one) {
    return std::tuple(one.asked_ns, one.node, one.start_ns, one.activity);
  });
  return work;
}

}  // namespace rooflm::foreign
