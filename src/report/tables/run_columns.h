// What a column may show of a run: a setting, a fact, a figure. For lists of typed columns.
#pragma once

#include <optional>

#include "report/model/run_data.h"
#include "report/model/run_figures.h"
#include "report/tables/typed_columns.h"
#include "report/views/view.h"

namespace rooflm::report::of_run {

inline auto setting(const char* key) {
  return [key](const RunData& run) { return run.setting(key); };
}
/// The number of a fact.
inline auto number(const char* key) {
  return [key](const RunData& run) { return run.number(key); };
}
/// The same as an integer.
inline auto count(const char* key) {
  return [key](const RunData& run) { return whole(run.number(key)); };
}
/// The text of a fact, nothing where it has none.
inline auto text(const char* key) {
  return [key](const RunData& run) { return known_text(run.text(key)); };
}
inline auto figure(std::optional<double> RunFigures::*member) {
  return [member](const RunData& run) { return figures_of(run).*member; };
}
inline Cell status(const RunData& run) { return run.run.status; }

}  // namespace rooflm::report::of_run
