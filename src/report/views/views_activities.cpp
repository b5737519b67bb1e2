// The view of activities: what took time on devices and hosts, of any program, by name and by lane.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "core/stretches.h"
#include "core/units.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

double seconds_of(const record::Activity& activity) {
  return static_cast<double>(activity.end_ns - activity.start_ns) * core::kNano;
}

/// The activities of one kind and name.
struct ActivityGroup {
  std::string kind{}, name{};
  std::vector<double> seconds{};
  std::set<std::int64_t> lanes{};
  double total_s = 0, kind_s = 0;  ///< of this name, of all of the kind
  std::int64_t bytes = 0;
  [[nodiscard]] std::optional<double> byte_per_s() const {
    return bytes > 0 ? ratio_of(static_cast<double>(bytes), total_s) : std::nullopt;
  }
};

const TypedColumns<ActivityGroup>& activity_columns() {
  using Named = ActivityGroup;
  static const TypedColumns<ActivityGroup> columns = {
      {"kind", "kind", &Named::kind},
      {"time_share", "of kind", [](const Named& one) { return ratio_of(one.total_s, one.kind_s); },
       Show::percent},
      {"total_s", "total", &Named::total_s, Show::seconds},
      {"instances", "instances", [](const Named& one) { return one.seconds.size(); }},
      {"avg_s", [](const Named& one) { return core::mean(one.seconds); }},
      {"med_s", "med", [](const Named& one) { return core::median(one.seconds); }, Show::seconds},
      {"min_s", "min", [](const Named& one) { return std::ranges::min(one.seconds); }, Show::seconds},
      {"max_s", "max", [](const Named& one) { return std::ranges::max(one.seconds); }, Show::seconds},
      {"bytes", "bytes", [](const Named& one) { return one.bytes > 0 ? Cell(one.bytes) : Cell(); },
       Show::bytes},
      {"byte_per_s", &Named::byte_per_s},
      {"lanes", "lanes", [](const Named& one) { return one.lanes.size(); }},
      {"name", "name", &Named::name}};
  return columns;
}

/// Largest total first. Shares are of the activities of the same kind: a range holds the kernels in it, so
/// that kinds do not add up.
std::vector<ActivityGroup> groups_of(const RunData& run) {
  std::map<std::int64_t, const record::ActivityName*> names;
  for (const record::ActivityName& name : run.activity_names) names[name.name] = &name;
  std::map<std::pair<std::string, std::string>, ActivityGroup> groups;
  for (const record::Activity& activity : run.activities) {
    const auto name = names.find(activity.name);
    const std::string kind = name == names.end() ? "unknown" : name->second->kind;
    const std::string text = name == names.end() ? "unknown" : name->second->text;
    ActivityGroup& group = groups[{kind, text}];
    group.kind = kind;
    group.name = text;
    group.seconds.push_back(seconds_of(activity));
    group.total_s += group.seconds.back();
    group.bytes += activity.bytes.value_or(0);
    group.lanes.insert(activity.lane);
  }
  std::map<std::string, double> of_kind;
  for (const auto& [key, group] : groups) of_kind[group.kind] += group.total_s;
  std::vector<ActivityGroup> all;
  for (auto& [key, group] : groups) {
    group.kind_s = of_kind[group.kind];
    all.push_back(std::move(group));
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &ActivityGroup::total_s);
  return all;
}

/// What ran on a lane.
struct LaneActivities {
  std::string name{};
  std::optional<std::string> kind{}, device{};
  std::size_t activities = 0;
  double busy_s = 0, span_s = 0;
};

const TypedColumns<LaneActivities>& lane_activity_columns() {
  using Lane = LaneActivities;
  static const TypedColumns<LaneActivities> columns = {
      {"lane", "lane", &Lane::name},
      {"kind", "kind", &Lane::kind},
      {"device", "device", &Lane::device},
      {"activities", "activities", &Lane::activities},
      {"busy_s", "busy", &Lane::busy_s, Show::seconds},
      {"span_s", "from first to last", &Lane::span_s, Show::seconds},
      {"busy_share", "busy", [](const Lane& lane) { return ratio_of(lane.busy_s, lane.span_s); },
       Show::percent}};
  return columns;
}

std::vector<LaneActivities> lanes_with_activities(const RunData& run) {
  std::map<std::int64_t, std::vector<core::Stretch>> spans;
  for (const record::Activity& activity : run.activities)
    spans[activity.lane].emplace_back(activity.start_ns, activity.end_ns);
  std::vector<LaneActivities> lanes;
  for (const auto& [number, of_lane] : spans) {
    const auto known = std::ranges::find(run.lanes, number, &record::Lane::lane);
    const bool is_known = known != run.lanes.end();
    const auto [first, last] = core::hull(of_lane);
    lanes.push_back({.name = is_known && !known->name.empty() ? known->name : std::to_string(number),
                     .kind = is_known ? std::optional(known->kind) : std::nullopt,
                     .device = is_known ? std::optional(known->device) : std::nullopt,
                     .activities = of_lane.size(),
                     .busy_s = static_cast<double>(core::length_of(core::covered(of_lane))) * core::kNano,
                     .span_s = static_cast<double>(last - first) * core::kNano});
  }
  return lanes;
}

void add_activities(const RunData& run, const ViewOptions& options, View& view) {
  view.add("activities", "Activities by name",
           activity_columns().table(groups_of(run), options.top, "names"));
  view.add("activities.lanes", "Lanes",
           lane_activity_columns().table(lanes_with_activities(run), options.top, "lanes"));
}

constexpr std::array kActivitiesViews = {ViewDef{
    .place = 45,
    .info = {.name = "activities",
             .title = "Activities",
             .note = "Kernels, copies, calls and ranges of any program, by name; busy: the time during "
                     "which a lane had at least one.",
             .needs = "activities (a recorded program)"},
    .of_run = add_activities,
    .columns = [] { return columns_of(activity_columns(), lane_activity_columns()); }}};

}  // namespace

std::span<const ViewDef> views_activities() { return kActivitiesViews; }

}  // namespace rooflm::report
