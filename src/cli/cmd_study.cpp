// rooflm study: sweeps with a question, and the views that answer it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/output.h"
#include "cli/profile_session.h"
#include "cli/study_cells.h"
#include "cli/study_file.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"

namespace rooflm::cli {
namespace {

/// Everything empty: what is typed replaces what the study says.
struct Options {
  std::string name;
  bool large = false;
  ModelOptions model;
  RunOptions run;
  MachineOptions machine;
  ProfileOptions profile;
  OutputOptions output;
  std::string n, count, strategy, head_dim;

  Options() {
    for (const auto& [key, text] : by_name()) text->clear();
  }

  /// The option by the name that study files use.
  [[nodiscard]] std::map<std::string, std::string*> by_name() {
    return {{"model", &model.model},
            {"arch", &model.arch},
            {"layers", &model.layers},
            {"heads", &model.heads},
            {"kv-heads", &model.kv_heads},
            {"d-model", &model.d_model},
            {"d-ff", &model.d_ff},
            {"vocab", &model.vocab},
            {"batch", &run.batch},
            {"seq", &run.seq},
            {"engine", &run.engine},
            {"attention", &run.attention},
            {"dtype", &run.dtype},
            {"device", &run.device},
            {"recompute", &run.recompute},
            {"grad-accum", &run.grad_accum},
            {"warmup", &profile.warmup},
            {"min-steps", &profile.min_steps},
            {"max-steps", &profile.max_steps},
            {"memory-limit", &profile.memory_limit},
            {"max-seconds", &profile.max_seconds},
            {"n", &n},
            {"count", &count},
            {"strategy", &strategy},
            {"head-dim", &head_dim}};
  }
};

int list_studies(const std::string& format) {
  Table table{.columns = {{"name", "name"}, {"kind", "kind"}, {"title", "title"}, {"views", "views"}},
              .rows = {},
              .notes = {}};
  for (const Study& study : shipped_studies()) {
    Row row;
    row.set("name", study.name);
    row.set("kind", study.kind);
    row.set("title", study.title);
    row.set("question", study.question);
    std::string views;
    for (const std::string& view : study.views) views += (views.empty() ? "" : ",") + view;
    row.set("views", views);
    table.rows.push_back(std::move(row));
  }
  write_out(format_table(table, parse_format(format)));
  return 0;
}

/// What was typed wins over the study, the study over the defaults of the options.
void fill(Options& options, const Study& study) {
  const auto targets = options.by_name();
  const auto take = [&](const std::map<std::string, std::string>& from) {
    for (const auto& [key, value] : from) {
      std::string& target = *targets.at(key);
      if (target.empty()) target = value;
    }
  };
  if (options.large) take(study.large);
  take(study.options);
  const RunOptions defaults;
  for (const auto& [key, value] : std::map<std::string, std::string>{{"model", ModelOptions{}.model},
                                                                     {"batch", defaults.batch},
                                                                     {"seq", defaults.seq},
                                                                     {"engine", defaults.engine},
                                                                     {"dtype", defaults.dtype},
                                                                     {"device", defaults.device},
                                                                     {"recompute", defaults.recompute},
                                                                     {"grad-accum", defaults.grad_accum}}) {
    if (targets.at(key)->empty()) *targets.at(key) = value;
  }
}

/// A study of training steps. Warm-up may be a list too: the sweep once per value.
int run_profile(Options& options, const Study& study, ProfileSession& session) {
  const std::vector<Point> points = sweep(options.model, options.run);
  const int threads = options.machine.thread_count();
  for (const Point& point : points) make_backend(point.device, point.step.engine, threads);
  const auto warmups = parse_names("--warmup", options.profile.warmup);
  std::vector<ProfileSettings> settings;
  for (const std::string& warmup : warmups.empty() ? std::vector<std::string>{""} : warmups) {
    ProfileOptions each = options.profile;
    each.warmup = warmup;
    settings.push_back(each.settings(threads, options.machine.seed_value()));
  }
  if (study.name == "input" && settings.front().shards.empty()) {
    throw core::UsageError("study input needs --data: a shard, or a directory made by data prepare");
  }
  session.measure_ceilings(points, threads, options.profile.remeasure);
  int signal = 0;
  for (const ProfileSettings& each : settings) {
    bool all_oom = false;
    if (signal == 0) signal = session.run(points, each, all_oom);
  }
  return signal;
}

StudyOptions cell_options(Options& options) {
  StudyOptions result;
  for (const auto& [key, value] : options.by_name()) {
    if (!value->empty()) result[key] = *value;
  }
  return result;
}

int run(Options options) {
  constexpr int kSignalled = 128;  // as shells report a command that a signal ended
  if (options.name == "list") return list_studies(options.output.format);
  parse_format(options.output.format);
  const Study study = find_study(options.name);
  fill(options, study);
  note("{}: {}", study.name, study.question);
  ProfileSession session(options.output, "study " + study.name);
  session.describe(study.title, study.question);
  int signal = 0;
  const int threads = options.machine.thread_count();
  if (study.kind == "gemm") {
    session.record().add(gemm_cells(cell_options(options), threads));
  } else if (study.kind == "attention") {
    session.record().add(attention_cells(cell_options(options), threads));
  } else if (study.kind == "formats") {
    session.record().add(format_cells(cell_options(options)));
  } else {
    signal = run_profile(options, study, session);
  }
  session.show(study.views);
  return signal == 0 ? 0 : kSignalled + signal;
}

}  // namespace

Body declare_study(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("name", options->name, "A study of `rooflm study list`, or a .toml file of your own")
      ->type_name("NAME|FILE.toml|list")
      ->required();
  app.add_flag("--large", options->large, "The sizes of the published reports (hours on a processor)");
  options->model.add_to(app);
  options->run.add_to(app);
  options->machine.add_to(app);
  options->profile.add_to(app);
  for (const auto& [name, value, text] :
       {std::tuple{"--n", &options->n, "Extents of products, or of the matrix of study formats"},
        {"--count", &options->count, "Products at once, for study gemm"},
        {"--strategy", &options->strategy, "big, looped, batched, for study gemm"},
        {"--head-dim", &options->head_dim, "Head sizes, for study attention_sweep"}}) {
    app.add_option(name, *value, text)->group("Studies of single ops");
  }
  options->output.add_to(app);
  app.footer(
      "Each study names a sweep, how it is measured, and the views that answer its question; "
      "studies/README.md\n"
      "shows how to write one. Options replace what the study says.\n\n"
      "Example: rooflm study blocks --model gpt2 --seq 64,128,256 -o blocks.rooflm --html blocks.html");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
