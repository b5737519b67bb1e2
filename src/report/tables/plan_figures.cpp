// Plans in records, prepared for views, the answer and the page.
#include "report/tables/plan_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "core/units.h"
#include "report/tables/plan_rows.h"

namespace rooflm::report {
namespace {

std::string plan_cell_text(const Row& row, std::string_view key) {
  const Cell* cell = row.find(key);
  return cell == nullptr ? "" : format_cell(*cell, Show::plain);
}

/// "62.7 GB of 85.0 GB".
std::string plan_memory_text(const Row& plan) {
  return fmt::format("{} of {}", core::format_bytes(plan.number("peak_bytes")),
                     core::format_bytes(plan.number("memory_limit_bytes")));
}

std::string plan_interval_text(const Row& plan) {
  return fmt::format("{} ({} to {}, {})", core::format_seconds(plan.number("step_s")),
                     core::format_seconds(plan.number("step_low_s")),
                     core::format_seconds(plan.number("step_high_s")), plan.text("step_kind"));
}

/// What most of the step goes to, then what else takes a share worth naming.
std::string plan_bound_text(const Row& plan) {
  constexpr double kWorthNaming = 0.02;
  std::vector<StepPart> parts = step_parts();
  std::ranges::stable_sort(parts, std::ranges::greater{},
                           [&](const StepPart& part) { return plan.number(part.key); });
  const auto share = [&](const StepPart& part) { return plan.number(part.key) / plan.number("step_s"); };
  std::string text = fmt::format("{} takes {:.1f}% of it", parts.front().name, 100 * share(parts.front()));
  std::string others;
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (share(parts[i]) >= kWorthNaming)
      others += fmt::format("{}{} {:.1f}%", others.empty() ? "" : ", ", parts[i].name, 100 * share(parts[i]));
  return others.empty() ? text : text + "; " + others;
}

std::string plan_training_text(const Row& plan) {
  const auto brief = [&](const char* key) { return format_cell(Cell(plan.number(key)), Show::brief); };
  std::string text = fmt::format(" {} tokens take {} days ({} to {}) and {} GPU-hours",
                                 core::format_si(plan.number("tokens")), brief("days"), brief("days_low"),
                                 brief("days_high"), core::format_si(plan.number("gpu_hours")));
  if (plan.find("price") != nullptr) {
    text +=
        fmt::format(", for a price of {} ({} to {})", core::format_si(plan.number("price")),
                    core::format_si(plan.number("price_low")), core::format_si(plan.number("price_high")));
  }
  return text + ".";
}

/// "gpt2: planned 177 ms a step, measured 180 ms (-1.5%)." of each run.
std::string against_text(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    if (row.text("what") != "step_s") continue;
    text += fmt::format("{}{}: planned {} a step, measured {} ({:+.1f}%).", text.empty() ? "" : " ",
                        row.text("run"), core::format_seconds(row.number("planned")),
                        core::format_seconds(row.number("measured")), 100 * row.number("error"));
  }
  return text;
}

}  // namespace

std::vector<Row> plan_rows(const RecordSet& set, std::string_view series) {
  std::vector<Row> all;
  for (const RecordFile& file : set.files) {
    std::vector<Row> rows = rows_of_cells(series, file.cells);
    std::ranges::for_each(rows, set_split);
    std::ranges::move(rows, std::back_inserter(all));
  }
  return all;
}

const Row* shown_plan(const std::vector<Row>& plans) {
  const auto fits =
      std::ranges::find_if(plans, [](const Row& plan) { return plan.find("step_s") != nullptr; });
  if (fits != plans.end()) return &*fits;
  return plans.empty() ? nullptr : &plans.front();
}

std::vector<std::string> plan_names(const std::vector<Row>& plans) {
  std::vector<std::string> names(plans.size());
  for (const PlanSetting& setting : plan_settings()) {
    const std::string_view key = setting.key;
    std::set<std::string> values;
    for (const Row& plan : plans) values.insert(plan_cell_text(plan, key));
    if (values.size() < 2) continue;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const std::string value = plan_cell_text(plans[i], key);
      if (value.empty()) continue;
      if (!names[i].empty()) names[i] += ' ';
      names[i] += setting.speaks_for_itself ? value : fmt::format("{}={}", setting.title, value);
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) continue;
    const Row& plan = plans[i];
    names[i] = plans.size() > 1 ? "as it is"
                                : fmt::format("{} on {} {}", plan.text("model"), plan_cell_text(plan, "gpus"),
                                              plan.text("device"));
  }
  return names;
}

const std::vector<StepPart>& step_parts() {
  static const std::vector<StepPart> parts = {
      {"compute", "compute_s"}, {"slowed by overlap", "slowed_s"}, {"exposed communication", "exposed_s"},
      {"host", "host_s"},       {"waiting", "waiting_s"},          {"bubble", "bubble_s"}};
  return parts;
}

const std::vector<StepPart>& memory_parts() {
  static const std::vector<StepPart> parts = {{"weight", "weight_bytes"},
                                              {"gradient", "gradient_bytes"},
                                              {"optimizer_state", "optimizer_bytes"},
                                              {"activation", "activation_bytes"},
                                              {"workspace", "workspace_bytes"},
                                              {"communication buffers", "buffer_bytes"},
                                              {"fragmentation", "gap_bytes"},
                                              {"context", "context_bytes"}};
  return parts;
}

std::vector<std::size_t> frontier_of(const std::vector<Row>& plans) {
  std::vector<std::size_t> order(plans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t i) { return plans[i].find("step_s") == nullptr; });
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    return std::pair(plans[i].number("peak_bytes"), plans[i].number("step_s"));
  });
  std::vector<std::size_t> frontier;
  double fastest_s = std::numeric_limits<double>::infinity();
  for (const std::size_t i : order) {
    if (plans[i].number("step_s") >= fastest_s) continue;
    fastest_s = plans[i].number("step_s");
    frontier.push_back(i);
  }
  return frontier;
}

std::string answer_plan(const RecordSet& set) {
  const std::vector<Row> plans = plan_rows(set, record::kPlanSeries);
  const Row* plan = shown_plan(plans);
  if (plan == nullptr) return against_text(plan_rows(set, record::kPlanAgainstSeries));
  const std::vector<std::string> names = plan_names(plans);
  const std::string& name = names[static_cast<std::size_t>(plan - plans.data())];
  const std::string which = plans.size() > 1 ? fmt::format("{}: ", name) : "";
  if (plan->find("step_s") == nullptr)
    return fmt::format("{}It does not fit: peak memory per rank is {}.", which, plan_memory_text(*plan));
  const double mfu = plan->number("mfu");
  return fmt::format("{}It fits: peak memory per rank is {}. A step takes {}{}; {}.{}", which,
                     plan_memory_text(*plan), plan_interval_text(*plan),
                     mfu > 0 ? fmt::format(", {:.1f}% MFU", 100 * mfu) : "", plan_bound_text(*plan),
                     plan_training_text(*plan));
}

}  // namespace rooflm::report
