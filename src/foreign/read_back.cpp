// A run of a record as a run in the making: its steps can be found again.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>

#include "foreign/foreign_run.h"

namespace rooflm::foreign {
namespace {

/// What find_steps wrote of the run.
constexpr std::string_view kFactsOfSteps[] = {"steps", "slow_steps", "kernels_of_no_step"};

/// 5 of the member "KEY":5.
std::optional<std::int64_t> member_of(const std::string& extra, std::string_view key) {
  const std::size_t at = extra.find(key);
  if (at == std::string::npos) return std::nullopt;
  return std::atoll(extra.c_str() + at + key.size());
}

}  // namespace

ForeignRun ForeignRun::read_back(const record::Reader& record, const record::Run& of) {
  ForeignRun run;
  run.is_read_back_ = true;
  run.label = of.label;
  run.status = of.status;
  for (const record::Lane& row : record.rows<record::Lane>(of.id)) run.lane(std::to_string(row.lane), row);
  std::map<std::int64_t, std::int64_t> names;
  for (const record::ActivityName& row : record.rows<record::ActivityName>(of.id))
    names[row.name] = run.name(row.kind, row.text);
  // Records from before steps were a fact: where no device says anything, their steps are the program's own.
  const std::vector<record::Fact> facts = record.rows<record::Fact>(of.id);
  const bool has_own_steps =
      std::ranges::find(facts, "steps", &record::Fact::key) == facts.end() &&
      std::ranges::none_of(run.lanes_, [](const record::Lane& lane) { return lane.kind == "device"; });
  const std::int64_t step = run.name("range", "step");
  const std::int64_t host_step = run.name("range", kHostStep);
  for (record::Activity activity : record.rows<record::Activity>(of.id)) {
    const auto name = names.find(activity.name);
    const auto lane = run.find_lane(std::to_string(activity.lane));
    if (name == names.end() || !lane) {
      run.count("activities without a name or a lane were left out");
      continue;
    }
    activity.name = name->second;
    activity.lane = *lane;
    if (activity.name == step && activity.step && !has_own_steps) {
      const auto own = member_of(activity.extra, kNameMember);
      if (!own || !names.contains(*own)) continue;  // find_steps made it
      activity.name = names.at(*own);
      const std::size_t more = activity.extra.find(',');
      activity.extra = more == std::string::npos ? "" : "{" + activity.extra.substr(more + 1);
    }
    if (activity.name != step || !has_own_steps) activity.step.reset();
    if (activity.name == host_step) {
      activity.name = step;
      activity.step = member_of(activity.extra, kMarkMember);
    }
    run.add(std::move(activity));
  }
  run.ops_ = record.rows<record::Op>(of.id);
  for (record::Op& op : run.ops_) op.launches = 0;
  run.kernel_works_ = record.rows<record::KernelWork>(of.id);
  run.predictions_ = record.rows<record::Prediction>(of.id);
  run.gauges_ = record.rows<record::Gauge>(of.id);
  run.tensors_ = record.rows<record::Tensor>(of.id);
  run.memory_ = record.rows<record::MemoryEvent>(of.id);
  for (const record::Fact& fact : facts) {
    if (std::ranges::find(kFactsOfSteps, fact.key) == std::end(kFactsOfSteps)) run.add_fact(fact);
  }
  for (record::Sample& sample : record.rows<record::Sample>(of.id)) {
    if (sample.kind == "plain") run.timed_.push_back(std::move(sample));
  }
  return run;
}

}  // namespace rooflm::foreign
