// rooflm plan: what a run would take, before it exists.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/output.h"
#include "cli/plans/plan_against.h"
#include "cli/plans/plan_inference.h"
#include "cli/plans/plan_modes.h"
#include "cli/plans/plan_options.h"
#include "cli/plans/plan_page.h"
#include "cli/plans/plan_report.h"
#include "cli/plans/plan_strategies.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/units.h"
#include "perfmodel/plan.h"
#include "report/tables/plan_rows.h"

namespace rooflm::cli {
namespace {

double number_or_zero(std::string_view option, const std::string& text, double least = 0) {
  return text.empty() ? 0 : parse_number(option, text, least);
}

/// "2.5EUR", "$2.5" or "2.5" as a number and its currency, dollars where none is said.
std::pair<double, std::string> split_price(const std::string& text) {
  const std::size_t begin = std::min(text.find_first_of("+-.0123456789"), text.size());
  double price = 0;
  const char* const end = std::from_chars(text.data() + begin, text.data() + text.size(), price).ptr;
  const std::string number(text.data() + begin, end);
  std::string currency = text.substr(0, begin) + end;
  std::erase(currency, ' ');
  if (number.empty() || currency.find_first_of("+-.0123456789") != std::string::npos)
    throw core::UsageError(fmt::format("--price {}: expected a number, with or without a currency: 2.5EUR",
                                       core::printable(text)));
  return {parse_number("--price", number), currency.empty() ? "$" : currency};
}

perfmodel::RunBudget budget_of(const PlanOptions& options) {
  constexpr double kHour = 3600;
  constexpr double kLeast = 1e-6;
  if (options.mtbf.empty() && !options.checkpoint.empty())
    throw core::UsageError("--checkpoint is about failures: it needs --mtbf");
  const auto [price, currency] = split_price(options.price.empty() ? "0" : options.price);
  return {.tokens = options.tokens.empty() ? 0 : parse_count("--tokens", options.tokens, 1),
          .price_per_gpu_hour = price,
          .currency = currency,
          .mtbf_s = kHour * number_or_zero("--mtbf", options.mtbf, kLeast),
          .checkpoint_s = number_or_zero("--checkpoint", options.checkpoint, kLeast)};
}

/// Options that would be read by nobody.
void refuse_unused(const PlanOptions& options) {
  const auto is_split = [](const std::string& degrees) {
    return std::ranges::any_of(parse_integers("degrees", degrees), [](std::int64_t n) { return n > 1; });
  };
  if (options.search || options.smallest) {
    const char* const mode = options.search ? "--search" : "--smallest";
    for (const std::string_view key : {"dp", "cp", "ep", "tp", "pp", "zero"}) {
      if (options.is_given(key))
        throw core::UsageError(fmt::format("{} tries every split: leave out --{}", mode, key));
    }
    if (options.smallest && options.is_given("interleave"))
      throw core::UsageError("--smallest tries no interleaved stages: leave out --interleave");
    return;
  }
  const std::tuple<bool, const char*, const char*> wants[] = {
      {options.async_tp, "--async-tp is about tensor-parallel ranks", "tp"},
      {options.whole_rows, "--no-sequence-parallel is about tensor-parallel ranks", "tp"},
      {options.is_given("interleave"), "--interleave is about the stages of a pipeline", "pp"},
      {!options.imbalance.empty(), "--expert-imbalance is about ranks that share experts", "ep"}};
  for (const auto& [is_given, what, key] : wants) {
    if (is_given && !is_split(options.splits.text(key)))
      throw core::UsageError(fmt::format("{}: it needs --{}", what, key));
  }
}

/// Options without what a search chooses itself; says which of them were given.
PlanOptions without_choices(PlanOptions options) {
  const char* const mode = options.search ? "--search" : "--smallest";
  const auto take = [&](const char* option, const std::string& given, const std::string& initial) {
    if (given != initial) note("{} makes this choice itself: {} is ignored", mode, option);
    return initial;
  };
  options.config.set("batch", take("--batch", options.config.text("batch"), "1"));
  options.config.set("recompute", take("--recompute", options.config.text("recompute"), "none"));
  if (options.is_given("pp_schedule")) note("{} plans 1f1b: --pipeline-schedule is ignored", mode);
  if (options.short_ends) note("{} cuts models with and without --short-ends", mode);
  return options;
}

/// A record says what ran and how it was split: only the device and its catalog are asked for beside it.
void refuse_beside_against(const PlanOptions& options) {
  options.refuse({"--framework", "--search", "--smallest", "--largest", "--scaling", "--what-if",
                  "--calibrate", "--gpus", "--memory-limit"},
                 " has no meaning with --against, which plans what ran");
}

constexpr const char* kUnpacked = "the plan has them as --dtype, --base and --weights say";

/// Of models whose programs lack something.
void note_left_out(const Plans& plans) {
  std::set<std::string> said;
  for (const PlannedRun& run : plans.runs) {
    const model::ModelConfig& config = run.point->config;
    if (!config.left_out.empty() && said.insert(config.name).second)
      note("{}: the plan leaves out {}", config.name, config.left_out);
    if (!config.other_parts.empty() && said.insert(config.name + "/").second)
      note("{}: the plan is without {}", config.name, config.other_parts);
    if (!config.stored_as.empty() && said.insert(config.name + "//").second)
      note("{}: the file's weights are quantised ({}); {}", config.name, config.stored_as, kUnpacked);
  }
}

/// What the options ask for; they contradict each other where it is more than one thing.
void plan_what(const PlanOptions& options, Plans& plans) {
  const int modes = (options.scaling.empty() ? 0 : 1) + (options.largest.empty() ? 0 : 1) +
                    (options.smallest ? 1 : 0) + (options.search && options.scaling.empty() ? 1 : 0);
  if (modes > 1)
    throw core::UsageError(
        "--search, --scaling, --largest and --smallest: one of them, or --scaling with --search");
  refuse_unused(options);
  if (!options.scaling.empty()) return plan_scaling(options, plans);
  if (!options.largest.empty()) return plan_largest(options, plans);
  if (options.smallest) return plan_smallest(options, plans);
  options.search ? search_all(options, plans) : plan_all(options, plans);
}

/// Refuses columns that the tables of these options never have.
void require_plan_columns(const PlanOptions& options, const TableStyle& style) {
  if (!options.against.empty()) return require_columns(report::columns_of(report::against_columns()), style);
  if (options.strategies) return require_columns(columns_of_strategies(), style);
  if (options.explain.empty()) return require_columns(columns_of_plans(), style);
  require_columns(report::columns_of(report::term_columns(), report::memory_term_columns()), style);
}

/// Adds the named columns that are not shown otherwise; of what is out of memory they stay empty.
Table with_named_columns(Table table, const report::ColumnChoice& choice) {
  const std::vector<Column> known = columns_of_plans();
  for (const std::string& name : choice.names) {
    const auto is_it = [&](const Column& column) { return column.key == name || column.title == name; };
    if (std::ranges::any_of(table.columns, is_it)) continue;
    if (const auto found = std::ranges::find_if(known, is_it); found != known.end())
      table.columns.push_back(*found);
  }
  return table;
}

void print_plans(const PlanOptions& options, const Plans& plans, const perfmodel::RunBudget& budget,
                 const TableStyle& style) {
  std::vector<Row> rows;
  for (const PlannedRun& planned : plans.runs) rows.push_back(plan_row(planned, budget));
  Table table = plan_table(std::move(rows), plans.runs);
  if (options.framework.empty()) table.notes.insert(table.notes.begin(), own_framework_note());
  const bool is_chosen = !style.columns.names.empty() && options.explain.empty();
  table = is_chosen ? with_named_columns(std::move(table), style.columns) : with_heading(std::move(table));
  if (options.explain.empty()) return write_out(show_table(table, style));
  // Columns that are named are those of the explanation.
  const bool is_text = style.format == Format::table || style.format == Format::md;
  if (is_text) write_out(show_table(table, {.format = style.format, .columns = {}}) + "\n");
  std::vector<Table> terms;
  for (const PlannedRun& planned : plans.runs) {
    for (const std::string& what : parse_names("--explain", options.explain))
      terms.push_back(what == "step_s" ? explain_step(planned) : explain_memory(planned));
  }
  write_out(show_tables(terms, style));
}

/// Checks what can be checked without planning.
int show_what_it_would(const PlanOptions& options) {
  const std::vector<perfmodel::Setting> settings = settings_of(options);
  std::size_t points = 0;
  for (const perfmodel::Setting& setting : settings) points += points_of(options, setting).size();
  const std::string what = options.against.empty() ? fmt::format("plan {} configurations", points)
                                                   : fmt::format("plan what {} measured", options.against);
  show_dry_run(what, {{"-o", options.record}, {"--html", options.html}});
  return 0;
}

int run(const PlanOptions& options) {
  const TableStyle style = options.table.style();
  if (options.is_inference()) {
    const auto [price, currency] = split_price(options.price.empty() ? "0" : options.price);
    const Table table = plan_inferences(options, price, currency);
    if (options.dry_run) show_dry_run(fmt::format("plan {} configurations", table.rows.size()), {});
    if (!options.dry_run) write_out(show_table(table, style));
    return 0;
  }
  options.refuse({"--weights", "--kv-cache", "--output-len", "--concurrency"},
                 " is about inference: it needs --phase prefill, decode or serve");
  require_plan_columns(options, style);
  if (options.device.empty()) {
    std::string known;
    for (const devices::Device& device : devices::catalog()) known += ' ' + device.key;
    throw core::UsageError("--device is missing: a key of the catalog:" + known);
  }
  for (const std::string& what : parse_names("--explain", options.explain)) {
    if (what != "step_s" && what != "peak_bytes")
      throw core::UsageError(fmt::format("--explain {}: expected step_s or peak_bytes", what));
  }
  if (options.strategies) {
    const Table table = plan_strategies(options);
    if (options.dry_run) show_dry_run(fmt::format("compare {} strategies", table.rows.size()), {});
    if (!options.dry_run) write_out(show_table(table, style));
    return 0;
  }
  check_plan_outputs(options);
  const perfmodel::RunBudget budget = budget_of(options);
  if (options.dry_run) return show_what_it_would(options);
  if (!options.against.empty()) {
    refuse_beside_against(options);
    const Table table = plan_against(options.against, device_of(options));
    if (!prints_no_table(options)) write_out(show_table(table, style));
    write_against(options, table);
    return 0;
  }
  Plans plans;
  plans.settings = settings_of(options);
  const bool is_searched = options.search || options.smallest;
  const auto begin = std::chrono::steady_clock::now();
  plan_what(is_searched ? without_choices(options) : options, plans);
  const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - begin;
  note_left_out(plans);
  note("planned in {}", core::format_seconds(lasted.count()));
  if (!prints_no_table(options)) print_plans(options, plans, budget, style);
  write_plans(options, plans, budget);
  return 0;
}

}  // namespace

Body declare_plan(CommandLine& line) {
  auto options = std::make_shared<PlanOptions>();
  options->add_to(line);
  line.footer(
      "Nothing is run or allocated. The program that the engines would run is built for\n"
      "one rank of each role and priced op by op from measured tables\n"
      "(docs/perfmodel.md). --batch is the micro-batch of one rank. Numbers are marked\n"
      "measured, calibrated (measured op by op on such a device) or assumed (scaled by\n"
      "datasheet rates).\n\n"
      "Example: rooflm plan --model llama3-8b --device h100 --gpus 8 --fsdp --tokens 1T");
  return [options] {
    if (!options->former_schedule.empty()) options->splits.set("pp_schedule", options->former_schedule);
    options->take_words();
    return run(*options);
  };
}

}  // namespace rooflm::cli
