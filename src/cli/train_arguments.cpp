// The options of `rooflm train` as typed, and the plan that they make.
#include "cli/train_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/dry_run.h"
#include "cli/output_rule.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "lab/devices.h"
#include "lab/model_file.h"
#include "perfmodel/device_fit.h"
#include "record/options.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

/// Whether only training has it, and the command line: --log is a path.
bool is_own(const train::OptionField& field) {
  return record::find_option(field.facts.option) == nullptr && !field.facts.help.empty();
}

/// The fields that are checked together: what a step processes, and how it is split. A resumed run takes
/// those that were not given from its checkpoint.
constexpr std::string_view kStepSizes[] = {
    "batch", "seq", "grad_accum",        "dp",          "zero",      "cp", "ep",
    "tp",    "pp",  "sequence_parallel", "pp_schedule", "interleave"};

/// The sizes of a model as text by option, to compare and to print.
std::vector<std::pair<std::string, std::string>> sizes_of(const model::ModelConfig& c) {
  record::Config sizes;
  record::write_options(model::Overrides{.arch = c.arch,
                                         .layers = c.layers,
                                         .heads = c.heads,
                                         .kv_heads = c.kv_heads,
                                         .d_model = c.d_model,
                                         .d_ff = c.d_ff,
                                         .vocab = c.vocab,
                                         .head_dim = c.head_dim},
                        sizes);
  if (c.arch == model::Arch::gpt2) sizes.set("positions", c.max_seq);
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [key, value] : sizes.entries())
    texts.emplace_back(record::find_field(key)->option, record::format_value(value));
  return texts;
}

void require_same_model(const model::ModelConfig& given, const model::ModelConfig& saved,
                        const fs::path& checkpoint) {
  const auto now = sizes_of(given);
  const auto was = sizes_of(saved);
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].second == was[i].second) continue;
    throw core::UsageError(fmt::format("{} {} contradicts {}, which has {}; leave it out to continue",
                                       now[i].first, now[i].second, checkpoint.string(), was[i].second));
  }
}

/// The value of a given option as checkpoints write it; "" for a list, which ConfigOptions::single refuses.
std::string typed_text(const record::Field& field, const std::string& text) {
  if (field.type == record::FieldType::flag) return "yes";
  if (field.type != record::FieldType::integer) return text;
  const auto values = parse_integers(field.option, text, field.key == "zero" ? 0 : 1);
  return values.size() == 1 ? std::to_string(values.front()) : "";
}

/// Sets the sizes in `config` to those that the run continues with: what was given, and for the rest what the
/// checkpoint remembers, fitted to the ranks of this job.
void take_step_sizes(ConfigOptions& config, const std::function<bool(const std::string&)>& was_given,
                     const lab::Ranks& ranks, const fs::path& checkpoint) {
  const auto is_size = [](const train::OptionField& field) {
    return std::ranges::find(kStepSizes, field.facts.key) != std::end(kStepSizes);
  };
  const auto is_given = [&](const std::string& option) {
    const record::Field* field = record::find_option("--" + option);
    return field != nullptr && std::ranges::find(kStepSizes, field->key) != std::end(kStepSizes) &&
           was_given(option);
  };
  train::TrainOptions options;
  options.ranks = ranks;
  for (const train::OptionField& field : train::option_fields()) {
    if (!is_given(field.name)) continue;
    const std::string text = typed_text(field.facts, config.text(field.facts.key));
    if (text.empty()) return;
    field.set(options, text);
  }
  const train::CheckpointState state = train::read_checkpoint_state(checkpoint);
  options = train::continued(options, state.options, is_given, checkpoint.string());
  for (const train::OptionField& field : train::option_fields()) {
    if (is_size(field)) config.set(field.facts.key, field.get(options));
  }
}

std::vector<fs::path> paths_of(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

/// Of the shards to train on and of those to evaluate on.
void require_same_tokenizer(const fs::path& model, const train::TrainingData& data) {
  train::require_same_tokenizer(model, data.given);
  train::require_same_tokenizer(model, data.given_val);
}

}  // namespace

TrainArguments::TrainArguments() {
  config_.set("batch", "8");
  config_.set("seq", "256");
  const train::TrainOptions defaults;
  for (const train::OptionField& field : train::option_fields()) fields_[field.name] = field.get(defaults);
  fields_["steps"] = fields_["min-lr"] = "";  // one is needed, the other depends on --lr
}

void TrainArguments::add_to(CommandLine& line) {
  line_ = &line;
  line.add_option("--data", data_, "Directory made by data prepare, or shards to train on")
      .type_name("DIR|SHARD...")
      .list()
      .group("Data");
  line.add_option("--val-data", val_data_, "Shards to evaluate on instead of those in the directory")
      .type_name("SHARD...")
      .list()
      .group("Data");
  config_.add_to(line);
  for (const train::OptionField& field : train::option_fields()) {
    if (!is_own(field)) continue;
    std::string& value = fields_.at(field.name);
    Option option = line.add_option(std::string(field.facts.option), value, std::string(field.facts.help));
    option.type_name(field.values).group(std::string(field.facts.group));
    if (!value.empty()) option.show_default();
  }
  line.add_option("--out", out_, "Directory for checkpoints and the log; created if missing")
      .type_name("DIR")
      .group("Checkpoints");
  line.add_flag("--resume", resume_, "Continue from the newest checkpoint in --out, if there is one")
      .group("Checkpoints");
  line.add_option(
          "--log", log_,
          "JSON, one line per step: a file of this run alone, or a device (default: log.jsonl in --out)")
      .type_name("FILE")
      .group("Watching");
  line.add_option("--memory-limit", memory_limit_, "Maximum memory to use: 8GB, 8GiB (default: free memory)")
      .type_name("SIZE")
      .group("Run");
  line.add_option("--peak", peak_, "Peak FLOP/s for MFU (default: measured here in about a second)")
      .type_name("X")
      .group("Watching");
  line.add_flag("--no-peak", no_peak_, "Do not measure the peak (no MFU)").group("Watching");
  line.add_option("-o,--output", record_, "Write times and losses of all steps to this run record")
      .type_name("FILE.rooflm")
      .group("Watching");
  line.add_flag("--overwrite", overwrite_, "Overwrite an existing record").group("Watching");
  add_dry_run(line, dry_run_, "Run");
  table_.add_to(line, "Format of the summary", "Watching");
}

bool TrainArguments::was_given(const std::string& option) const { return line_->was_given("--" + option); }

bool TrainArguments::model_was_given() const {
  return was_given("model") ||
         std::ranges::any_of(record::keys_of(model::Overrides{}), [this](std::string_view key) {
           return line_->was_given(std::string(record::find_field(key)->option));
         });
}

train::TrainOptions TrainArguments::typed_options(const lab::Point& point) const {
  train::TrainOptions options;
  options.step = point.step;
  for (const train::OptionField& field : train::option_fields()) {
    if (is_own(field) && (was_given(field.name) || line_->has_default(field.name)))
      field.set(options, fields_.at(field.name));
  }
  options.batch = point.batch;
  options.seq = point.seq;
  options.seed = point.seed;
  options.out = out_;
  if (!log_.empty()) options.log = fs::absolute(log_);
  if (!memory_limit_.empty()) options.memory_limit_bytes = parse_bytes("--memory-limit", memory_limit_);
  if (!peak_.empty()) options.peak_flop_per_s = parse_number("--peak", peak_, 1);
  if (!was_given("min-lr") && !line_->has_default("min-lr"))
    options.schedule.min_lr = options.schedule.lr / 10;
  return options;
}

model::ModelConfig TrainArguments::new_model(const std::string& model, const lab::Point& point,
                                             const train::TrainingData& data) const {
  model::ModelConfig config = point.config;
  const bool has_weights = lab::is_model_directory(model);
  if (!was_given("vocab") && !has_weights && data.vocab_size > 0) config.vocab = data.vocab_size;
  if (has_weights && was_given("vocab") && config.vocab != lab::find_model(model).vocab) {
    throw core::UsageError(fmt::format("--vocab {} contradicts the weights of {}", config.vocab, model));
  }
  if (!has_weights || config.padded_vocab < config.vocab) {
    config.padded_vocab = train::padded_vocabulary(config.vocab);
  }
  return config;
}

void TrainArguments::plan_resumed(lab::TrainPlan& plan, const lab::Point& point,
                                  const fs::path& checkpoint) const {
  const train::CheckpointState state = train::read_checkpoint_state(checkpoint);
  const auto given = [this](const std::string& option) { return was_given(option); };
  plan.options = train::continued(plan.options, state.options, given, checkpoint.string());
  perfmodel::fit_to_device(plan.options.step,
                           backends::provider_of(plan.point.device).describe(plan.point.device));
  plan.gemm_choices = state.gemm_choices;
  plan.data = train::open_training_data(data_.empty() ? state.data : paths_of(data_),
                                        val_data_.empty() ? state.val_data : paths_of(val_data_));
  require_same_tokenizer(checkpoint, plan.data);
  const model::ModelConfig saved = train::read_checkpoint_config(checkpoint, state);
  if (model_was_given()) {
    const std::string model = was_given("model") ? config_.text("model") : checkpoint.string();
    require_same_model(new_model(model, point, plan.data), saved, checkpoint);
  }
  plan.config = saved;
  plan.start.checkpoint = checkpoint;
}

void TrainArguments::check_paths() const {
  std::vector<fs::path> inputs = files_of_models(config_.text("model"));
  for (const auto& named : {files_of(data_), files_of(val_data_)}) {
    inputs.insert(inputs.end(), named.begin(), named.end());
  }
  check_outputs({{"-o", record_}}, inputs, overwrite_);
  refuse_inputs({{"--log", log_}, {"--out", fs::path(out_) / "log.jsonl"}}, inputs);
}

/// What must be the same on all ranks because it decides numbers or files.
std::map<std::string, std::string> TrainArguments::values_of(const lab::TrainPlan& plan) const {
  std::map<std::string, std::string> values{
      {"version", ROOFLM_VERSION},
      {"--out", out_},
      {"checkpoint", plan.start.checkpoint.string()},
      {"--device", plan.point.device.substr(0, plan.point.device.find(':'))}};
  for (const auto& [name, text] : train::to_texts(plan.options)) values["--" + name] = text;
  for (const auto& [name, text] : sizes_of(plan.config)) values[name] = text;
  for (const train::ShardName& shard : train::shard_names(plan.data))
    values["--data"] += fmt::format("{} ({} tokens) ", shard.name, shard.tokens);
  return values;
}

std::vector<OutputPath> TrainArguments::outputs() const {
  return {{"--out", out_}, {"--log", log_}, {"-o", record_}};
}

lab::TrainPlan TrainArguments::plan(const lab::Ranks& ranks) const {
  lab::TrainPlan plan = plan_alone(ranks);
  lab::Point place = plan.point;
  place.step = plan.options.step;
  lab::take_place(place, ranks);
  plan.options.step.rank = place.step.rank;
  plan.point.threads = place.threads;
  compile::check(place.step.sharding, plan.config, plan.options.batch, plan.options.seq,
                 place.step.micro_batches);
  lab::agree(ranks, values_of(plan));
  plan.point.device_ranks = lab::agree_on_devices(ranks, place.device);
  return plan;
}

lab::TrainPlan TrainArguments::plan_alone(const lab::Ranks& ranks) const {
  if (out_.empty()) throw core::UsageError("--out is missing: a directory for checkpoints and the log");
  if (ranks::is_first(ranks)) check_paths();
  lab::TrainPlan plan;
  plan.ranks = ranks;
  plan.measures_peak = !no_peak_;
  plan.start.may_resume = resume_;
  const auto checkpoints = resume_ ? train::list_checkpoints(out_) : std::vector<fs::path>();
  ConfigOptions config = config_;
  if (!checkpoints.empty() && !was_given("model")) config.set("model", checkpoints.back().string());
  if (!checkpoints.empty()) {
    const auto given = [this](const std::string& option) { return was_given(option); };
    take_step_sizes(config, given, ranks, checkpoints.back());
  }
  const std::string& model = config.text("model");
  const lab::Point point = config.single();
  plan.point = point;
  plan.options = typed_options(point);
  plan.options.ranks = ranks;
  if (!checkpoints.empty()) {
    plan_resumed(plan, point, checkpoints.back());
    return plan;
  }
  if (!was_given("steps") && !line_->has_default("steps")) {
    if (resume_)
      throw core::UsageError(
          fmt::format("--resume: there is no checkpoint in {} to resume; a new run needs --steps", out_));
    throw core::UsageError("--steps is missing: how many optimizer steps to train");
  }
  train::validate(plan.options);
  plan.data = train::open_training_data(paths_of(data_), paths_of(val_data_));
  plan.config = new_model(model, point, plan.data);
  if (lab::is_model_directory(model)) {
    plan.start.weights = train::resolve_model_directory(model);
    require_same_tokenizer(plan.start.weights, plan.data);
  }
  return plan;
}

}  // namespace rooflm::cli
