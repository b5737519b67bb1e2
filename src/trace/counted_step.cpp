// Counts one step with hardware counters, op by op.
#include "trace/counted_step.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "core/error.h"

namespace rooflm::trace {
namespace {

/// Makes each op a range. Observers must not throw: the first error ends counting and is kept.
class OpRanges final : public engines::Observer {
 public:
  explicit OpRanges(DeviceCounters& counters) : counters_(&counters) {}
  void on_op_begin(const program::Program& /*program*/, std::size_t index) override {
    guard([&] { counters_->begin_range(index); });
  }
  void on_op_end(const program::Program& /*program*/, std::size_t /*index*/) override {
    guard([&] { counters_->end_range(); });
  }
  /// Rethrows the error of the step, if any.
  void check() const {
    if (!error_.empty()) throw core::Unavailable(error_);
  }

 private:
  template <class Call>
  void guard(const Call& call) {
    if (!error_.empty()) return;
    try {
      call();
    } catch (const core::Unavailable& error) {
      error_ = error.what();
    }
  }
  DeviceCounters* counters_;
  std::string error_;
};

void merge(std::map<std::size_t, CountedRange>& ops, std::vector<CountedRange> counted) {
  for (CountedRange& range : counted) {
    CountedRange& op = ops[range.id];
    op.id = range.id;
    std::ranges::move(range.values, std::back_inserter(op.values));
  }
}

/// Runs all passes of a set; false if `before_pass` ended it.
bool run_passes(engines::Engine& engine, DeviceCounters& counters, const std::function<bool()>& before_pass,
                std::vector<engines::StepTimes>& times) {
  bool is_done = false;
  while (!is_done) {
    if (!before_pass()) return false;
    OpRanges ranges(counters);
    counters.begin_pass();
    times.push_back(engine.run(&ranges));
    ranges.check();
    is_done = counters.end_pass();
  }
  return true;
}

}  // namespace

CountedStep count_step(engines::Engine& engine, DeviceCounters& counters, std::span<const CounterSet> sets,
                       const std::function<bool()>& before_pass) {
  CountedStep step;
  std::map<std::size_t, CountedRange> ops;
  for (const CounterSet& set : sets) {
    try {
      counters.begin(set, engine.program().ops.size());
      const int passes = counters.passes();
      const bool is_whole = run_passes(engine, counters, before_pass, step.times);
      if (!is_whole) {
        counters.cancel();
        step.missing.push_back(set.name + ": interrupted");
        break;
      }
      merge(ops, counters.take());
      step.sets.push_back(fmt::format("{}: {} {}", set.name, passes, passes == 1 ? "pass" : "passes"));
    } catch (const core::Unavailable& error) {
      counters.cancel();
      step.missing.push_back(fmt::format("{}: {}", set.name, error.what()));
    }
  }
  for (auto& [id, range] : ops) step.ops.push_back(std::move(range));
  return step;
}

std::vector<CountedValue> count_work(DeviceCounters& counters, const CounterSet& set,
                                     const std::function<void()>& work) {
  try {
    counters.begin(set, 1);
    bool is_done = false;
    while (!is_done) {
      counters.begin_pass();
      counters.begin_range(0);
      work();
      counters.end_range();
      is_done = counters.end_pass();
    }
    auto ranges = counters.take();
    return ranges.empty() ? std::vector<CountedValue>() : std::move(ranges.front().values);
  } catch (...) {
    counters.cancel();
    throw;
  }
}

}  // namespace rooflm::trace
