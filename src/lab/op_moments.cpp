// When the ops of some steps ran, from whatever observed them.
#include "lab/op_moments.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "program/ops.h"

namespace rooflm::lab {

double ObservedSteps::mean_s() const {
  double sum_s = 0;
  for (const ObservedStep& step : steps) sum_s += step.seconds;
  return steps.empty() ? 0 : sum_s / static_cast<double>(steps.size());
}

ObservedSteps observed_steps(const trace::OpRecorder& recorder, const measure::InterleaveResult& result) {
  ObservedSteps observed;
  observed.moments.reserve(recorder.events().size());
  for (const record::Event& event : recorder.events()) {
    const std::int64_t start_ns = recorder.origin_ns() + event.start_ns;
    observed.moments.push_back(
        {.step = event.step, .op = event.op, .start_ns = start_ns, .end_ns = start_ns + event.device_ns});
  }
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    if (result.steps[i].kind == measure::StepKind::observed)
      observed.steps.push_back({static_cast<std::int64_t>(i), result.steps[i].times.step_s});
  }
  return observed;
}

std::int64_t nanoseconds_of(std::chrono::steady_clock::time_point moment) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch()).count();
}

std::vector<OpMoment> moments_of(const trace::TraceRows& rows, std::int64_t epoch_ns,
                                 const program::Program& program, const std::vector<ObservedStep>& steps) {
  std::map<std::int64_t, std::string_view> kinds;  // of names
  for (const record::ActivityName& name : rows.names) kinds[name.name] = name.kind;
  std::set<std::int64_t> wanted;
  for (const ObservedStep& step : steps) wanted.insert(step.step);
  std::map<std::pair<std::int64_t, std::int64_t>, OpMoment> found;
  for (const record::Activity& activity : rows.activities) {
    if (!activity.op || !activity.step || !wanted.contains(*activity.step)) continue;
    const std::string_view kind = kinds[activity.name];
    const bool is_copy = kind == trace::name_of(trace::ActivityKind::copy);
    const bool is_kernel = kind == trace::name_of(trace::ActivityKind::kernel);
    const program::Op& op = program.ops.at(static_cast<std::size_t>(*activity.op));
    if (!is_copy && (!is_kernel || op.is(program::ops::kSend))) continue;
    const OpMoment own{.step = *activity.step,
                       .op = *activity.op,
                       .start_ns = epoch_ns + activity.start_ns,
                       .end_ns = epoch_ns + activity.end_ns};
    const auto [entry, is_new] = found.try_emplace({own.step, own.op}, own);
    OpMoment& moment = entry->second;
    moment.start_ns = std::min(moment.start_ns, own.start_ns);
    moment.end_ns = std::max(moment.end_ns, own.end_ns);
  }
  std::vector<OpMoment> moments;
  moments.reserve(found.size());
  for (const auto& [key, moment] : found) moments.push_back(moment);
  return moments;
}

}  // namespace rooflm::lab
