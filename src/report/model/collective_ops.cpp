// Collectives of recorded programs as ops of their own.
#include "report/model/collective_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "record/op_times.h"
#include "report/model/kernel_names.h"

namespace rooflm::report {
namespace {

std::set<std::int64_t> names_of_collectives(const RunData& run) {
  std::set<std::int64_t> names;
  for (const record::ActivityName& name : run.activity_names) {
    const bool talks =
        name.kind == kCollectiveClass ||
        (name.kind == "kernel" && parse_kernel_name(name.text).kernel_class == kCollectiveClass);
    if (talks) names.insert(name.name);
  }
  return names;
}

/// Makes the ops, and moves kernels and their times to them.
class CollectiveTaker {
 public:
  explicit CollectiveTaker(RunData& run) : run_(run) {
    for (std::size_t i = 0; i < run.events.size(); ++i)
      events_.try_emplace({run.events[i].step, run.events[i].op}, i);
    for (const record::Event& event : run.events) steps_.insert(event.step);
  }

  void take(record::Activity& kernel) {
    const TimedOp* from = run_.find_op(*kernel.op);
    if (from == nullptr || is_communication(*from)) return;
    const auto event = kernel.step ? events_.find({*kernel.step, *kernel.op}) : events_.end();
    if (event == events_.end()) return;
    Made& made = op_of(from->op);
    const std::int64_t ns = kernel.end_ns - kernel.start_ns;
    run_.events[event->second].device_ns -= ns;
    const auto [own, is_first] = made.events.try_emplace(*kernel.step);
    own->second.start_ns = is_first ? kernel.start_ns : std::min(own->second.start_ns, kernel.start_ns);
    own->second.device_ns += ns;
    ++made.kernels;
    ++taken_[*kernel.op];
    kernel.op = made.op.op;
  }

  void finish() {
    if (made_.empty()) return;
    const auto steps = static_cast<std::int64_t>(steps_.size());
    const auto per_step = [&](std::int64_t kernels) { return (kernels + steps / 2) / steps; };
    for (TimedOp& timed : run_.ops) {
      const auto taken = taken_.find(timed.op.op);
      if (taken != taken_.end())
        timed.op.launches = std::max<std::int64_t>(0, timed.op.launches - per_step(taken->second));
    }
    std::map<std::int64_t, const Made*> by_number;
    for (const auto& [place, made] : made_) by_number[made.op.op] = &made;
    for (const auto& [number, made] : by_number) {
      TimedOp timed;
      timed.block = timed.part = kCollectives;
      timed.op = made->op;
      timed.op.launches = per_step(made->kernels);
      run_.ops.push_back(std::move(timed));
      for (const std::int64_t step : steps_) {
        const auto found = made->events.find(step);
        record::Event event = found == made->events.end() ? record::Event() : found->second;
        event.step = step;
        event.op = number;
        run_.events.push_back(event);
      }
    }
    std::ranges::stable_sort(run_.events, {}, &record::Event::step);
    for (const record::OpTime& time : record::summarise_ops(run_.events)) {
      const auto op =
          std::ranges::lower_bound(run_.ops, time.op, {}, [](const TimedOp& timed) { return timed.op.op; });
      if (op != run_.ops.end() && op->op.op == time.op) op->time = time;
    }
  }

 private:
  struct Made {
    record::Op op;
    std::map<std::int64_t, record::Event> events;  ///< by step
    std::int64_t kernels = 0;
  };

  Made& op_of(const record::Op& from) {
    const auto layer = layer_of(from.scope);
    const auto [entry, is_new] = made_.try_emplace({from.phase, layer.value_or(-1)});
    if (is_new) {
      const std::int64_t number = run_.ops.back().op.op + static_cast<std::int64_t>(made_.size());
      entry->second.op = {.op = number,
                          .kind = std::string(kCollectiveClass),
                          .op_class = std::string(kCollectiveClass),
                          .kernel = std::string(kCollectiveClass),
                          .name = kCollectives,
                          .phase = from.phase,
                          .scope = layer ? fmt::format("h.{}/{}", *layer, kCollectives) : kCollectives,
                          .lane = kCollectives};
    }
    return entry->second;
  }

  RunData& run_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> events_;  ///< by step and op
  std::set<std::int64_t> steps_;
  std::map<std::pair<std::string, std::int64_t>, Made> made_;  ///< by phase and layer
  std::unordered_map<std::int64_t, std::int64_t> taken_;       ///< kernels of each op in all steps
};

}  // namespace

void take_collectives(RunData& run) {
  if (run.ops.empty() || run.events.empty()) return;
  const std::set<std::int64_t> names = names_of_collectives(run);
  if (names.empty()) return;
  CollectiveTaker taker(run);
  for (record::Activity& activity : run.activities) {
    if (activity.op && names.contains(activity.name)) taker.take(activity);
  }
  taker.finish();
}

}  // namespace rooflm::report
