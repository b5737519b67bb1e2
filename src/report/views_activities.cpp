// The view of activities: what took time on devices and hosts, of any program, by name and by lane.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

constexpr double kViewsActivitiesNano = 1e-9;

double seconds_of(const record::Activity& activity) {
  return static_cast<double>(activity.end_ns - activity.start_ns) * kViewsActivitiesNano;
}

/// The activities of one kind and name.
struct ActivityGroup {
  std::string kind, name;
  std::vector<double> seconds;
  std::set<std::int64_t> lanes;
  double total_s = 0;
  std::int64_t bytes = 0;
};

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
  std::vector<ActivityGroup> all;
  for (auto& [key, group] : groups) all.push_back(std::move(group));
  std::ranges::stable_sort(
      all, [](const ActivityGroup& a, const ActivityGroup& b) { return a.total_s > b.total_s; });
  return all;
}

Row group_row(const ActivityGroup& group, double kind_s) {
  const auto [least, most] = std::ranges::minmax_element(group.seconds);
  Row row;
  row.set("kind", group.kind);
  row.set("time_share", cell_of(ratio_of(group.total_s, kind_s)));
  row.set("total_s", group.total_s);
  row.set("instances", static_cast<std::int64_t>(group.seconds.size()));
  row.set("avg_s", core::mean(group.seconds));
  row.set("med_s", core::median(group.seconds));
  row.set("min_s", *least);
  row.set("max_s", *most);
  row.set("bytes", group.bytes > 0 ? Cell(group.bytes) : Cell());
  row.set("byte_per_s",
          group.bytes > 0 ? cell_of(ratio_of(static_cast<double>(group.bytes), group.total_s)) : Cell());
  row.set("lanes", static_cast<std::int64_t>(group.lanes.size()));
  row.set("name", group.name);
  return row;
}

Table name_table(const RunData& run, std::size_t top) {
  Table table{.columns = {{"kind", "kind"},
                          {"time_share", "of kind", Show::percent},
                          {"total_s", "total", Show::seconds, "s"},
                          {"instances", "instances"},
                          {"med_s", "med", Show::seconds, "s"},
                          {"min_s", "min", Show::seconds, "s"},
                          {"max_s", "max", Show::seconds, "s"},
                          {"bytes", "bytes", Show::bytes, "byte"},
                          {"lanes", "lanes"},
                          {"name", "name"}},
              .rows = {},
              .notes = {}};
  const std::vector<ActivityGroup> groups = groups_of(run);
  std::map<std::string, double> of_kind;
  for (const ActivityGroup& group : groups) of_kind[group.kind] += group.total_s;
  for (const ActivityGroup& group : groups) {
    if (top > 0 && table.rows.size() == top) {
      table.notes.push_back(std::to_string(groups.size() - top) + " more names (--top 0 shows all)");
      break;
    }
    table.rows.push_back(group_row(group, of_kind[group.kind]));
  }
  return table;
}

/// Nanoseconds that at least one of the spans covers; orders them.
std::int64_t covered_ns(std::vector<std::pair<std::int64_t, std::int64_t>>& spans) {
  std::ranges::sort(spans);
  std::int64_t covered = 0;
  std::int64_t end = spans.empty() ? 0 : spans.front().first;
  for (const auto& [from, to] : spans) {
    covered += std::max<std::int64_t>(0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return covered;
}

Table lane_table(const RunData& run, std::size_t top) {
  Table table{.columns = {{"lane", "lane"},
                          {"kind", "kind"},
                          {"device", "device"},
                          {"activities", "activities"},
                          {"busy_s", "busy", Show::seconds, "s"},
                          {"span_s", "from first to last", Show::seconds, "s"},
                          {"busy_share", "busy", Show::percent}},
              .rows = {},
              .notes = {}};
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>> spans;
  for (const record::Activity& activity : run.activities) {
    spans[activity.lane].emplace_back(activity.start_ns, activity.end_ns);
  }
  for (auto& [lane, of_lane] : spans) {
    if (top > 0 && table.rows.size() == top) {
      table.notes.push_back(fmt::format("{} more lanes (--top 0 shows all)", spans.size() - top));
      break;
    }
    const auto known = std::ranges::find(run.lanes, lane, &record::Lane::lane);
    std::int64_t last = of_lane.front().second;
    for (const auto& [from, to] : of_lane) last = std::max(last, to);
    const double busy_s = static_cast<double>(covered_ns(of_lane)) * kViewsActivitiesNano;
    const double span_s = static_cast<double>(last - of_lane.front().first) * kViewsActivitiesNano;
    Row row;
    row.set("lane", known == run.lanes.end() || known->name.empty() ? std::to_string(lane) : known->name);
    row.set("kind", known == run.lanes.end() ? Cell() : Cell(known->kind));
    row.set("device", known == run.lanes.end() ? Cell() : Cell(known->device));
    row.set("activities", static_cast<std::int64_t>(of_lane.size()));
    row.set("busy_s", busy_s);
    row.set("span_s", span_s);
    row.set("busy_share", cell_of(ratio_of(busy_s, span_s)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_activities(const RunData& run, const ViewOptions& options, View& view) {
  view.add("activities", "Activities by name", name_table(run, options.top));
  view.add("activities.lanes", "Lanes", lane_table(run, options.top));
}

constexpr std::array kActivitiesViews = {ViewDef{
    .place = 45,
    .info = {.name = "activities",
             .title = "Activities",
             .note = "Kernels, copies, calls and ranges of any program, by name; busy: the time in which a "
                     "lane had at least one.",
             .needs = "activities (a recorded program)",
             .is_on_page = false},
    .of_run = add_activities,
    .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_activities() { return kActivitiesViews; }

}  // namespace rooflm::report
