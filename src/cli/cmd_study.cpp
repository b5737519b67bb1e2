// rooflm study: sweeps with a question, and the views that answer it.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "cli/commands.h"
#include "cli/config_options.h"
#include "cli/micro_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/profile_session.h"
#include "cli/study_file.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "lab/micro_cells.h"

namespace rooflm::cli {
namespace {

/// Everything empty: what is typed replaces what the study says.
struct StudyOptions {
  std::string name;
  bool large = false;
  ConfigOptions config;
  ProfileOptions profile;
  OutputOptions output;
  std::map<std::string, std::string> others;  ///< of single ops, by option name without dashes

  StudyOptions() {
    config.clear();
    for (const char* single : {"n", "count", "strategy", "head-dim"}) others[single] = "";
  }

  /// What an option of a study file stands for, by its name without dashes.
  [[nodiscard]] std::string get(const std::string& option) {
    if (const record::Field* field = record::find_option("--" + option)) return config.text(field->key);
    return *other(option);
  }
  void set(const std::string& option, const std::string& value) {
    if (const record::Field* field = record::find_option("--" + option)) {
      config.set(field->key, value);
    } else {
      *other(option) = value;
    }
  }

 private:
  std::string* other(const std::string& option) {
    const std::map<std::string, std::string*> measuring = {{"min-steps", &profile.min_steps},
                                                           {"max-steps", &profile.max_steps},
                                                           {"memory-limit", &profile.memory_limit},
                                                           {"max-seconds", &profile.max_seconds},
                                                           {"precision", &profile.precision}};
    const auto found = measuring.find(option);
    return found == measuring.end() ? &others.at(option) : found->second;
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
  write_out(show_table(table, parse_format(format)));
  return 0;
}

/// What was typed wins over the study, the study over the defaults of the options.
TakenOptions fill(StudyOptions& options, const Study& study) {
  TakenOptions taken;
  for (const std::string& name : study_options()) {
    if (!options.get(name).empty()) taken.some_typed = true;
  }
  const auto take = [&](const char* table, const std::map<std::string, std::string>& from) {
    for (const auto& [name, value] : from) {
      if (!options.get(name).empty()) continue;
      options.set(name, value);
      taken.tables[name] = table;
    }
  };
  if (options.large) take("large", study.large);
  take("options", study.options);
  return taken;
}

/// A study of training steps.
void run_profile(StudyOptions& options, const Study& study, ProfileSession& session) {
  options.config.fill();
  const std::vector<lab::Point> points = options.config.sweep();
  for (const lab::Point& point : points) lab::make_backend(point);
  const lab::RunSettings settings = options.profile.settings();
  if (study.name == "input" && settings.shards.empty()) {
    throw core::UsageError("study input needs --data: a shard, or a directory made by data prepare");
  }
  bool all_oom = false;
  session.run(points, settings, all_oom);
}

lab::MicroSettings micro_settings(StudyOptions& options) {
  ConfigOptions config{"threads", "deterministic", "search_products"};
  for (const char* key : {"threads", "search_products"}) {
    if (!options.config.text(key).empty()) config.set(key, options.config.text(key));
  }
  const lab::Point run = config.single();
  lab::MicroSettings settings;
  settings.backend = {
      .threads = run.threads, .gemm_search = run.gemm_search, .deterministic = run.deterministic};
  return settings;
}

/// Replaces `target` where the study or the user says something.
void take(std::string& target, const std::string& value) {
  if (!value.empty()) target = value;
}

std::vector<lab::GemmCase> gemm_cases(StudyOptions& options) {
  GemmOptions gemm;
  take(gemm.device, options.get("device"));
  take(gemm.dtype, options.get("dtype"));
  take(gemm.strategy, options.get("strategy"));
  take(gemm.size, options.get("n"));
  take(gemm.count, options.get("count"));
  return gemm.cases();
}

std::vector<lab::AttentionCase> attention_cases(StudyOptions& options) {
  AttentionOptions attention;
  attention.attention = "batched,flash";
  take(attention.device, options.get("device"));
  take(attention.dtype, options.get("dtype"));
  take(attention.engine, options.get("engine"));
  take(attention.attention, options.get("attention"));
  take(attention.batch, options.get("batch"));
  take(attention.heads, options.get("heads"));
  take(attention.kv_heads, options.get("kv-heads"));
  take(attention.head_dim, options.get("head-dim"));
  take(attention.seq, options.get("seq"));
  return attention.cases();
}

std::vector<record::Cell> cells_of(StudyOptions& options, const Study& study) {
  if (study.kind == "formats") {
    const std::string n = options.get("n");
    return lab::format_cells(parse_integer("--n", n.empty() ? "4096" : n));
  }
  lab::MicroBench bench(micro_settings(options));
  if (study.kind == "gemm") return lab::cells_of(bench.run(gemm_cases(options)));
  return lab::cells_of(bench.run(attention_cases(options)));
}

int run(StudyOptions options) {
  if (options.name == "list") return list_studies(options.output.format);
  parse_format(options.output.format);
  const Study study = find_study(options.name);
  check_views(study);
  const TakenOptions taken = fill(options, study);
  note("{}: {}", study.name, study.question);
  std::vector<std::filesystem::path> inputs = files_of_models(options.config.text("model"));
  std::vector<std::string> others = options.profile.data;
  others.push_back(options.name);
  const auto files = files_of(others);
  inputs.insert(inputs.end(), files.begin(), files.end());
  ProfileSession session(options.output, "study " + study.name, options.profile.remeasure, inputs);
  session.describe(study.title, study.question);
  try {
    if (study.kind == "profile") {
      run_profile(options, study, session);
    } else {
      session.record().add(cells_of(options, study));
    }
  } catch (const core::UsageError& error) {
    blame(study, taken, error);
  }
  session.show(study.views);
  const int signal = core::StopSignals::received();
  return signal == 0 ? 0 : core::stopped_code(signal);
}

}  // namespace

Body declare_study(CommandLine& line) {
  auto options = std::make_shared<StudyOptions>();
  line.add_option("name", options->name, "A study of `rooflm study list`, or a .toml file of your own")
      .type_name("NAME|FILE.toml|list")
      .required();
  line.add_flag("--large", options->large, "The sizes of the published reports (hours on a processor)");
  options->config.add_to(line);
  options->profile.add_to(line);
  for (const auto& [name, text] : {std::pair{"n", "Extents of products, or of the matrix of study formats"},
                                   {"count", "Products at once, for study gemm"},
                                   {"strategy", "big, looped, batched, for study gemm"},
                                   {"head-dim", "Head sizes, for study attention_sweep"}}) {
    line.add_option(fmt::format("--{}", name), options->others[name], text).group("Studies of single ops");
  }
  options->output.add_to(line);
  line.footer(
      "Each study names a sweep, how it is measured, and the views that answer its question; "
      "studies/README.md\n"
      "shows how to write one. Options replace what the study says.\n\n"
      "Example: rooflm study blocks --model gpt2 --seq 64,128,256 -o blocks.rooflm --html blocks.html");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
