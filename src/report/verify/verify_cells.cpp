// Laws of studies that are no training steps: their cells against each other.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/model/summaries.h"
#include "report/verify/laws.h"

namespace rooflm::report {
namespace {

constexpr double kMs = 1e-3, kUs = 1e-6;

/// What a row states of one piece of work: columns "flop", "wall_ms" and "rate", or with a prefix,
/// "forward_flop", "forward_ms" and "forward_rate"; of what ranks send each other "size", "time_us", "algbw".
struct WorkColumns {
  const char *work, *time, *rate;
  double second = kMs;  ///< the unit of time
  const char* unit = "flop";
};
constexpr std::array kWork = {WorkColumns{"flop", "wall_ms", "rate"},
                              WorkColumns{"forward_flop", "forward_ms", "forward_rate"},
                              WorkColumns{"backward_flop", "backward_ms", "backward_rate"},
                              WorkColumns{"size", "time_us", "algbw", kUs, "byte"}};

/// A request is admitted after it arrived, has its first token after that, and its last after its first.
void check_request(const std::map<std::string, double>& request, std::int64_t row, LawBook& laws) {
  constexpr std::array kOrder = {"arrival_s", "admitted_s", "first_token_s", "finish_s"};
  for (std::size_t i = 0; i + 1 < kOrder.size(); ++i) {
    const auto before = request.find(kOrder.at(i));
    const auto after = request.find(kOrder.at(i + 1));
    if (before == request.end() || after == request.end()) continue;
    laws.at_most("the times of a request follow each other", fmt::format("request {}, {}", row, kOrder.at(i)),
                 before->second, after->second, "s", kExact);
  }
}

/// The unit of losses, which are 0 where a model is sure of the right token.
constexpr std::string_view kNats = "nats";

/// Units of what is measured or counted, so that nought would mean that nothing was.
bool is_quantity(const std::string& unit) { return !unit.empty() && unit != "share"; }

}  // namespace

void check_cells(const record::Reader& record, LawBook& laws) {
  using Values = std::map<std::string, double>;
  std::map<std::pair<std::string, std::int64_t>, Values> rows;
  for (const record::Cell& cell : record.cells()) {
    if (!cell.value) continue;
    rows[{cell.series, cell.row}][cell.col] = *cell.value;
    if (cell.col == "wrong")
      laws.equal("results of collectives are correct", fmt::format("{}, row {}", cell.series, cell.row),
                 *cell.value, 0, "elements", kExact);
    const auto place = [&] { return fmt::format("{}, row {}, {}", cell.series, cell.row, cell.col); };
    if (cell.unit == kNats) {
      laws.not_negative("losses are not negative", place, *cell.value, cell.unit);
    } else if (is_quantity(cell.unit)) {
      laws.positive("cells with a unit are positive", place, *cell.value, cell.unit);
    }
  }
  for (const auto& [place, values] : rows) {
    if (place.first == record::kServingRequestSeries) check_request(values, place.second, laws);
    for (const WorkColumns& work : kWork) {
      if (!values.contains(work.work) || !values.contains(work.time) || !values.contains(work.rate)) continue;
      laws.equal("rate times time is the work",
                 fmt::format("{}, row {}, {}", place.first, place.second, work.rate),
                 values.at(work.rate) * values.at(work.time) * work.second, values.at(work.work), work.unit,
                 kRounding);
    }
  }
}

void check_training(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const auto steps = record.fact(run.id, "trained_steps");
  if (run.kind != "train" || !steps || !steps->value) return;
  std::map<std::int64_t, double> losses;  // by step
  for (const record::Cell& cell : record.cells()) {
    if (cell.series == record::kTrainingSeries && cell.col == "loss" && cell.value) {
      losses[cell.row] = *cell.value;
    }
  }
  double samples = 0;
  for (const record::Sample& sample : record.rows<record::Sample>(run.id)) {
    if (sample.phase == kStep) ++samples;
  }
  constexpr std::string_view kLaw = "every trained step has its row and its sample";
  laws.equal(kLaw, "samples", samples, *steps->value, "steps", kExact);
  laws.equal(kLaw, "rows", static_cast<double>(losses.size()), *steps->value, "steps", kExact);
  const auto loss = record.fact(run.id, "loss");
  if (losses.empty() || !loss || !loss->value) return;
  laws.equal("the loss of a run is that of its last step", "loss", *loss->value, losses.rbegin()->second,
             kNats, kExact);
}

}  // namespace rooflm::report
