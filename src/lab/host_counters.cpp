// Steps under the hardware counters of this processor.
#include "lab/host_counters.h"

#include <map>
#include <string>

#include "perfmodel/program_totals.h"

namespace rooflm::lab {

std::vector<record::Counter> count_steps(measure::Counters& counters, engines::Engine& engine,
                                         StepInputs& inputs) {
  constexpr int kSteps = 3;
  std::map<std::string, record::Counter> sums;
  for (int i = 0; i < kSteps; ++i) {
    inputs.write(i);
    counters.start();
    engine.run();
    counters.stop();
    for (const measure::CounterValue& value : counters.read()) {
      record::Counter& sum = sums[value.name];
      sum.phase = "step";
      sum.name = value.name;
      sum.value += value.value / kSteps;
      sum.unit = value.unit;
      sum.source = "perf_event";
    }
  }
  const program::Cost cost = perfmodel::step_totals(engine.program()).cost;
  std::vector<record::Counter> rows;
  for (const auto& [name, sum] : sums) rows.push_back(sum);
  const auto counted = [&](const char* name, std::int64_t value, const char* unit) {
    record::Counter& row = rows.emplace_back();
    row.phase = "step";
    row.name = name;
    row.value = static_cast<double>(value);
    row.unit = unit;
    row.source = "shapes";
  };
  counted("flop", cost.matmul_flop + cost.elementwise_flop, "flop");
  counted("bytes_read", cost.bytes_read, "B");
  counted("bytes_written", cost.bytes_written, "B");
  return rows;
}

}  // namespace rooflm::lab
