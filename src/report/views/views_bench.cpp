// The view of `rooflm bench`: its table, from any record of timed steps.
#include <algorithm>
#include <array>
#include <span>

#include "report/model/summaries.h"
#include "report/tables/bench_rows.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

void add_bench(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  const bool has_steps = std::ranges::any_of(set.runs, [](const RunData& run) {
    return !run.seconds(kStep).empty() || run.run.status == "oom" || run.run.status == "planned";
  });
  if (has_steps) view.add("bench", "Steps", bench_table(set));
}

constexpr std::array kBenchViews = {
    ViewDef{.place = 145,
            .info = {.name = "bench",
                     .title = "Benchmark",
                     .note = "The table of rooflm bench: steps without observer.",
                     .needs = kNeedsSamples,
                     .is_on_page = true,
                     .warns_of_load = false},
            .of_all = add_bench,
            .columns = columns_of_bench}};

}  // namespace

std::span<const ViewDef> views_bench() { return kBenchViews; }

}  // namespace rooflm::report
