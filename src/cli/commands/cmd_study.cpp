// rooflm study: sweeps with a question, and the views that answer it.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/config_options.h"
#include "cli/options/micro_options.h"
#include "cli/options/serving_options.h"
#include "cli/options/study_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/profile_session.h"
#include "cli/report_output.h"
#include "cli/shipped_studies.h"
#include "cli/study_file.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/file.h"
#include "core/units.h"
#include "lab/devices.h"
#include "lab/job.h"
#include "lab/largest_model.h"
#include "lab/micro/format_norms.h"
#include "lab/micro/format_norms_device.h"
#include "lab/micro/format_training.h"
#include "lab/micro/micro_cells.h"
#include "lab/serving_run.h"
#include "lab/traced_steps.h"
#include "lab/work_left.h"
#include "report/findings/answers.h"
#include "report/page/html.h"
#include "report/page/study_index.h"
#include "report/tables/column_choice.h"
#include "report/tables/typed_columns.h"
#include "report/views/views.h"

namespace rooflm::cli {
namespace {

constexpr const char* kLimits = "limits";
constexpr const char* kServing = "serving";
constexpr const char* kInput = "input";

int list_studies(const TableStyle& style) {
  static const report::TypedColumns<Study> columns = {
      {"name", "name", &Study::name},
      {"kind", "kind", &Study::kind},
      {"title", "title", &Study::title},
      {"question", &Study::question},
      {"views", "views", [](const Study& study) { return fmt::format("{}", fmt::join(study.views, ",")); }},
      {"gpu_views", "also on a GPU",
       [](const Study& study) { return fmt::format("{}", fmt::join(study.gpu_views, ",")); }}};
  write_out(show_table(columns.table(shipped_studies()), style));
  return 0;
}

/// The study that asks what fits: without a limit of the user it is the memory of the device that the plan is
/// for, or what is free here; and the largest model for it is solved for.
void add_largest(const std::vector<lab::Point>& points, lab::RunSettings& settings, ProfileSession& session) {
  if (!settings.memory_limit_bytes) {
    double bytes = lab::make_backend(points.front())->free_bytes();
    if (!std::isfinite(bytes)) bytes = lab::make_backend("cpu", compile::EngineKind::fused)->free_bytes();
    settings.memory_limit_bytes = bytes;
    note("memory: {} (--memory-limit changes this)", core::format_bytes(bytes));
  }
  session.record().add(lab::largest_cells(points, *settings.memory_limit_bytes));
}

/// Throws core::UsageError where a study of the input has none.
void require_data(const Study& study, const lab::RunSettings& settings) {
  if (study.name != kInput || !settings.shards.empty()) return;
  throw core::UsageError("study input needs --data: a shard, or a directory made by data prepare");
}

/// A study of training steps. Returns whether steps of a GPU were traced.
bool run_profile(StudyOptions& options, const Study& study, ProfileSession& session) {
  options.config.fill();
  const std::vector<lab::Point> points = options.config.sweep();
  lab::require_one_rank(points);
  for (const lab::Point& point : points) lab::make_backend(point);
  lab::RunSettings settings = options.profile.settings();
  if (!settings.shards.empty() && is_generation(points.front().phase)) {
    note("{}: prefill and decode use random tokens, not --data", study.name);
    settings.shards.clear();
  }
  if (study.name == kLimits) add_largest(points, settings, session);
  require_data(study, settings);
  bool all_oom = false;
  session.run(points, settings, all_oom);
  return settings.trace && std::ranges::any_of(points, lab::is_traceable);
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
  take(attention.window, options.get("window"));
  return attention.cases();
}

/// By the kernels of the device; none where it runs nothing.
std::vector<record::Cell> device_norms(StudyOptions& options) {
  const std::string device = lab::parse_device(device_or_default(options.get("device")));
  options.set("device", device);  // it is said once which it is
  if (!lab::runs(device)) return {};
  return lab::device_norm_cells(device);
}

/// Rows and columns of the matrix whose bytes study formats shows.
std::pair<std::int64_t, std::int64_t> matrix_of(StudyOptions& options) {
  const std::string n = options.get("n");
  const auto extents = parse_integers("--n", n.empty() ? "4096" : n, 1);
  if (extents.size() > 2) throw core::UsageError("--n: give one size, or rows,columns, for study formats");
  return {extents.front(), extents.back()};
}

/// The training run in fp8; none where the device has no fp8, or runs nothing.
std::optional<lab::Point> training_point(StudyOptions& options) {
  options.config.fill();
  try {
    lab::Point point = options.config.single();
    if (lab::runs(point.device)) return point;
  } catch (const core::Unavailable& error) {
    note("fp8 is left out: {}", error.what());
  }
  return std::nullopt;
}

std::vector<record::Cell> training_cells(StudyOptions& options) {
  const lab::RunSettings settings = options.profile.settings();
  const auto point = training_point(options);
  if (!point) return {};
  try {
    return lab::fp8_cells(*point, settings.max_steps, settings.shards);
  } catch (const core::Unavailable& error) {
    note("fp8 is left out: {}", error.what());
    return {};
  }
}

lab::ServingSettings serving_settings_of(const StudyOptions& options) {
  lab::ServingSettings settings = serving_settings(options.others);
  const lab::RunSettings run = options.profile.settings();
  settings.memory_limit_bytes = run.memory_limit_bytes;
  if (!options.profile.stopping.max_seconds.empty()) settings.load.most_s = run.max_seconds;
  return settings;
}

std::vector<record::Cell> cells_of(StudyOptions& options, const Study& study) {
  if (study.kind == "formats") {
    const auto [rows, columns] = matrix_of(options);
    auto cells = lab::format_cells(rows, columns);
    for (const auto& more : {lab::norm_cells(), device_norms(options), training_cells(options)})
      cells.insert(cells.end(), more.begin(), more.end());
    return cells;
  }
  if (study.kind == kServing) {
    options.config.fill();
    return lab::serving_cells(options.config.sweep(), serving_settings_of(options));
  }
  lab::MicroBench bench(micro_settings(options));
  if (study.kind == "gemm") return lab::cells_of(bench.run(gemm_cases(options)));
  return lab::cells_of(bench.run(attention_cases(options)));
}

/// What would be done, after all that can be checked was.
void show_dry_run(StudyOptions& options, const Study& study,
                  const std::vector<std::filesystem::path>& inputs) {
  check_output(options.output, inputs);
  const std::vector<OutputPath> outputs = {{"-o", options.output.record}, {"--html", options.output.html}};
  if (study.kind == "profile") {
    options.config.fill();
    require_data(study, options.profile.settings());
    return show_dry_run(options.config.sweep(), outputs, options.output.table.style());
  }
  if (study.kind == kServing) {
    options.config.fill();
    lab::check_serving(options.config.sweep(), serving_settings_of(options).load);
    return show_dry_run(options.config.sweep(), outputs, options.output.table.style());
  }
  const TableStyle style = options.output.table.style();
  if (study.kind == "gemm") return show_dry_run(gemm_cases(options), outputs, style);
  if (study.kind == "attention") return show_dry_run(attention_cases(options), outputs, style);
  const auto [rows, columns] = matrix_of(options);
  std::vector<std::string> parts = {fmt::format("formats of a {} x {} matrix", rows, columns),
                                    "LayerNorm in fp16 and bf16"};
  if (const auto point = training_point(options))
    parts.push_back("training in fp8: " + lab::describe(*point));
  show_dry_run(parts, outputs, style);
}

/// Cells of a study of micro-benchmarks, of one row that nobody measured; none for other kinds.
std::vector<record::Cell> example_of(const Study& study) {
  if (study.kind == "gemm") {
    lab::MeasuredGemm row;
    row.result.emplace();
    row.launch.emplace();
    return lab::cells_of(std::span<const lab::MeasuredGemm>(&row, 1));
  }
  if (study.kind != "attention") return {};
  lab::MeasuredAttention row;
  row.result.emplace();
  return lab::cells_of(std::span<const lab::MeasuredAttention>(&row, 1));
}

/// Refuses columns that its tables do not have.
void require_columns_of_study(const StudyOptions& options, const Study& study) {
  if (auto cells = example_of(study); !cells.empty() && options.output.views.empty()) {
    report::RecordSet set;
    set.files.emplace_back().cells = std::move(cells);
    const report::View view = report::make_view("cells", set);
    std::vector<const Table*> tables;
    for (const report::ViewTable& table : view.tables) tables.push_back(&table.table);
    report::check_columns(options.output.table.style().columns, tables);
  }
  std::vector<std::string> views = study.views;
  views.insert(views.end(), study.gpu_views.begin(), study.gpu_views.end());
  require_shown_columns(options.output, views);
}

/// The study, measured and shown. Returns the exit code.
int run_one(StudyOptions options, const Study& study) {
  check_views(study);
  require_columns_of_study(options, study);
  const TakenOptions taken = options.fill(study);
  note("{}: {}", study.name, study.question);
  std::vector<std::filesystem::path> inputs = files_of_models(options.config.text("model"));
  std::vector<std::string> others = options.profile.data;
  others.push_back(options.name);
  if (const std::string& lengths = options.others["lengths"]; !lengths.empty()) others.push_back(lengths);
  const auto files = files_of(others);
  inputs.insert(inputs.end(), files.begin(), files.end());
  std::vector<std::string> views = study.views;
  try {
    if (options.output.dry_run) {
      show_dry_run(options, study, inputs);
      return 0;
    }
    ProfileSession session(options.output, "study " + study.name, options.profile.remeasure, inputs);
    session.describe(study);
    if (study.kind == "profile") {
      const bool is_traced = run_profile(options, study, session);
      if (is_traced) views.insert(views.end(), study.gpu_views.begin(), study.gpu_views.end());
      if (!is_traced && !study.gpu_views.empty()) {
        note("left out, because no GPU steps were traced: {}", fmt::join(study.gpu_views, ", "));
      }
    } else {
      session.record().add(cells_of(options, study));
    }
    session.show(views);
  } catch (const core::UsageError& error) {
    blame(study, taken, error);
  }
  const int signal = core::StopSignals::received();
  return signal == 0 ? 0 : core::stopped_code(signal);
}

/// Of all studies, says so where one cannot run.
bool is_left_out(const StudyOptions& options, const Study& study) {
  const bool lacks_data = study.name == kInput && options.profile.data.empty();
  if (lacks_data) note("{}: left out, it needs --data", study.name);
  return lacks_data;
}

/// What each would run, without a folder.
int dry_run_all(const StudyOptions& options, const std::filesystem::path& folder) {
  for (const Study& study : shipped_studies()) {
    if (is_left_out(options, study)) continue;
    StudyOptions one = options;
    one.name = study.name;
    one.output.html.clear();
    write_out(fmt::format("== {}\n", study.name));
    if (const int code = run_one(one, study); code != 0) return code;
  }
  write_out(fmt::format("a page and a record per study: {}\n", folder.string()));
  return 0;
}

/// One after another, each with a page and a record in the folder of --html, and an index of them. What a
/// study lacks here is said in the index, and the others go on.
int run_all(const StudyOptions& options) {
  if (!options.name.empty()) throw core::UsageError("study --all runs all of them: leave out the name");
  if (options.output.html.empty()) {
    throw core::UsageError("study --all needs --html DIR: the folder for its pages and records");
  }
  if (!options.output.record.empty()) {
    throw core::UsageError("study --all takes no -o: it writes a record per study into the folder of --html");
  }
  for (const Study& study : shipped_studies()) require_columns_of_study(options, study);
  report::require_page();
  const std::filesystem::path folder = options.output.html;
  if (options.output.dry_run) return dry_run_all(options, folder);
  make_folder(folder);
  std::vector<report::StudyEntry> entries;
  lab::WorkLeft left(shipped_studies().size());
  for (const Study& study : shipped_studies()) {
    left.begin("study " + study.name);
    if (is_left_out(options, study)) continue;
    StudyOptions one = options;
    one.all = false;
    one.name = study.name;
    one.output.html = (folder / (study.name + ".html")).string();
    one.output.record = (folder / (study.name + ".rooflm")).string();
    report::StudyEntry entry{.name = study.name, .title = study.title, .question = study.question};
    try {
      const int code = run_one(one, study);
      if (code != 0) return code;
      entry.answer = report::answer_of(report::load(std::array{std::filesystem::path(one.output.record)}));
    } catch (const core::Error& error) {
      // What this machine cannot do says nothing about the next study; a mistake of the user would come
      // again.
      if (error.code() != core::ExitCode::unavailable && error.code() != core::ExitCode::out_of_memory) throw;
      entry.problem = error.what();
      note("{}: {}", study.name, error.what());
    }
    entries.push_back(std::move(entry));
    core::write_file_atomically(folder / "index.html", report::study_index(entries));
  }
  note("index: {}", (folder / "index.html").string());
  return 0;
}

constexpr const char* kSingleOps = "Single-op studies";
constexpr const char* kOfServing = "Study serving";

/// The options of a measurement that a study reads, by its kind. Studies of training steps (kind profile)
/// read all but those of the two groups above.
const std::map<std::string_view, const char*> kRead = {
    {"gemm", "n,count,strategy,device,dtype,threads,autotune"},
    {"attention", "head-dim,window,device,dtype,engine,attention,batch,heads,kv-heads,seq,threads,autotune"},
    // The training run is in fp8 and op by op: lab::fp8_cells sets the other options of a run.
    {"formats",
     "n,model,arch,layers,heads,kv-heads,d-model,head-dim,d-ff,positions,vocab,batch,seq,grad-accum,device,"
     "dtype,"
     "clip,threads,seed,autotune,nondeterministic,fp8-gradients,fp8-fast-sums,data,steps,max-steps"},
    {kServing,
     "rate,requests,prompt-tokens,new-tokens,lengths,users,schedule,model,arch,layers,heads,kv-heads,d-model,"
     "head-dim,d-ff,positions,vocab,batch,seq,engine,attention,device,dtype,fp8-scaling,fp8-fast-sums,"
     "threads,seed,autotune,"
     "nondeterministic,memory-limit,max-seconds"}};

bool reads(const Study& study, const Declared& option, const std::string& name) {
  const bool is_of_one_kind = option.group == kSingleOps || option.group == kOfServing;
  const auto read = kRead.find(study.kind);
  if (read == kRead.end()) return !is_of_one_kind;
  const bool is_of_all = record::find_option("--" + name) == nullptr && option.group != "Measuring";
  if (is_of_all && !is_of_one_kind) return true;
  const std::vector<std::string> names = parse_names(study.kind.c_str(), read->second);
  return std::ranges::find(names, name) != names.end();
}

/// Throws core::UsageError for an option that was typed and that the study does not read; how long and how
/// often to measure is asked of any study, so there it only says so. `study --all` needs no such check: there
/// is a study of each kind, so each option is read by one of them.
void check_read(const CommandLine& line, const Study& study) {
  constexpr std::array<std::string_view, 4> kHowLong = {"warmup", "min-steps", "max-steps", "max-seconds"};
  for (const Declared& option : line.declared()) {
    if (option.names.empty() || !line.was_given(option.names.back())) continue;
    const std::string name = option.names.back().substr(2);
    if (reads(study, option, name)) continue;
    const std::string message = fmt::format("--{} has no meaning for study {}", name, study.name);
    if (std::ranges::find(kHowLong, name) == kHowLong.end()) throw core::UsageError(message);
    note("{}", message);
  }
}

int run(StudyOptions options, const CommandLine& line) {
  (void)options.output.table.style();
  if (options.name == "list") return list_studies(options.output.table.style());
  for (const std::string& name : study_options()) {
    if (!line.has_default(name) || line.was_given("--" + name)) continue;
    options.standing[name] = options.get(name);
    options.set(name, "");
  }
  if (options.all) return run_all(options);
  if (options.name.empty()) {
    throw core::UsageError("study: name one, a .toml file, or --all; `rooflm study list` shows them");
  }
  const Study study = find_study(options.name);
  check_read(line, study);
  return run_one(std::move(options), study);
}

}  // namespace

Body declare_study(CommandLine& line) {
  auto options = std::make_shared<StudyOptions>();
  line.add_option("name", options->name, "A study from `rooflm study list`, or a .toml file of your own")
      .type_name("NAME|FILE.toml|list");
  line.offer_words("name", [] {
    std::vector<std::string> names{"list"};
    for (const ShippedStudy& study : shipped_study_files()) names.emplace_back(study.name);
    return names;
  });
  line.add_flag("--all", options->all,
                "Run all studies: a page and a record for each, and an index, in --html DIR");
  line.add_flag("--large", options->large, "Use the sizes of the published reports (hours on a CPU)");
  options->config.add_to(line);
  options->profile.add_to(line);
  for (const auto& [name, text] :
       {std::pair{"n", "Matmul sizes; for study formats the matrix: one size, or rows,columns"},
        {"count", "Number of matmuls, for study gemm"},
        {"strategy", "big, looped, batched, for study gemm"},
        {"window", "Keys that a query sees, for study attention_sweep (default: all before it)"}}) {
    line.add_option(fmt::format("--{}", name), options->others[name], text).group(kSingleOps);
  }
  for (const auto& [name, text] : serving_options())
    line.add_option(fmt::format("--{}", name), options->others[name], text).group(kOfServing);
  options->output.add_to(line);
  line.footer(
      "A study defines a sweep, how it is measured, and the views that answer its\n"
      "question; studies/README.md shows how to write one. Options override what the\n"
      "study says.\n\n"
      "Example: rooflm study blocks --seq 64,128,256 --html blocks.html");
  return [options, &line] { return run(*options, line); };
}

}  // namespace rooflm::cli
