// Times of ops that laws of speed hold.
#include <map>
#include <set>
#include <vector>

#include "core/statistics.h"
#include "report/verify/laws.h"

namespace rooflm::report {
namespace {

constexpr double kSecondsPerTick = 1e-9;

std::set<std::int64_t> steps_in_order(const record::Reader& record, const record::Run& run) {
  std::set<std::int64_t> steps;
  for (const record::Sample& sample : record.rows<record::Sample>(run.id)) {
    if (sample.kind == "in_order") steps.insert(sample.step);
  }
  return steps;
}

/// A GPU stamps about one mark in three thousand up to 10 us late. The median of three steps has no such
/// mark.
bool may_be_late(const record::OpTime& time) {
  constexpr std::int64_t kEnough = 3;
  return !time.wall_s && time.instances < kEnough;
}

}  // namespace

std::map<std::int64_t, double> kernel_seconds(const record::Reader& record, const record::Run& run) {
  const std::set<std::int64_t> steps = steps_in_order(record, run);
  if (steps.empty()) return {};
  std::set<std::int64_t> kernels;
  for (const record::ActivityName& name : record.rows<record::ActivityName>(run.id)) {
    if (name.kind == "kernel") kernels.insert(name.name);
  }
  std::map<std::int64_t, std::map<std::int64_t, double>> of_step;  // by op, by step
  for (const record::Activity& activity : record.rows<record::Activity>(run.id)) {
    if (!activity.op || !steps.contains(activity.step.value_or(-1)) || !kernels.contains(activity.name)) {
      continue;
    }
    const std::int64_t duration = activity.end_ns - activity.start_ns;
    of_step[*activity.op][*activity.step] += static_cast<double>(duration) * kSecondsPerTick;
  }
  std::map<std::int64_t, double> times;
  for (const auto& [op, seconds] : of_step) {
    std::vector<double> all;
    for (const auto& [step, sum_s] : seconds) all.push_back(sum_s);
    times[op] = core::median(all);
  }
  return times;
}

std::map<std::int64_t, double> op_seconds(const record::Reader& record, const record::Run& run) {
  const auto of_kernels = kernel_seconds(record, run);
  std::map<std::int64_t, double> times;
  for (const record::OpTime& time : record.op_times(run.id)) {
    const auto kernels = of_kernels.find(time.op);
    times[time.op] = may_be_late(time) && kernels != of_kernels.end() ? kernels->second : time.device_s;
  }
  return times;
}

}  // namespace rooflm::report
