// The training loop.
#include "train/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "core/ratio.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "model/flop_conventions.h"
#include "text/tokenizer.h"
#include "train/adapter_files.h"
#include "train/data_loader.h"
#include "train/evaluate.h"
#include "train/finite.h"
#include "train/generate.h"
#include "train/progress.h"
#include "train/session.h"
#include "train/train_log.h"

namespace rooflm::train {
namespace {

constexpr std::int64_t kSampleTokens = 64;
constexpr const char* kLogName = "log.jsonl";

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

}  // namespace

/// One run: what the trainer's constructor opens and its loop uses.
class Trainer::Loop {
 public:
  Loop(backends::Backend& backend, const model::ModelConfig& config, const TrainOptions& options,
       const TrainingData& data, const TrainStart& start, std::FILE* stream)
      : options_(checked(options)),
        step_tokens_(core::Count(options_.batch) * options_.seq * options_.step.micro_batches *
                     options_.step.sharding.data),
        model_flop_(
            static_cast<double>(core::Count(model::model_flop_per_token(
                                    config, options_.seq, model::trained_beside(options_.step.lora))) *
                                step_tokens_) /
            options_.step.sharding.ranks()),
        data_(data),
        session_(backend, config, options_.step, options_.memory_limit_bytes, options_.ranks.get()),
        progress_(options_.schedule.steps, options_.line_every, options_.is_first() ? stream : nullptr) {
    const ranks::Patience patience(options_.ranks.get());
    if (options_.is_first()) {
      output_ = std::make_unique<OutputDirectory>(options_.out);
      refuse_foreign_output(start);
    }
    open_data(config);
    check_checkpoint(start.checkpoint);
    if (options_.find_peak && options_.is_first()) options_.peak_flop_per_s = options_.find_peak();
    const bool has_weights = start.checkpoint.empty() && !start.weights.empty();
    if (!options_.step.lora.empty()) check_adapters(start, has_weights);
    if (has_weights) verify_weights(start.weights, config);
    session_.make_training_engine(options_.batch, options_.seq);
    if (validation_) session_.make_loss_engine(eval_batch_, options_.seq);
    if (!start.checkpoint.empty()) {
      resume(start.checkpoint);
    } else if (has_weights) {
      session_.load(start.weights);
      if (!options_.step.lora.empty()) session_.initialise_adapters(options_.seed);
    } else {
      session_.initialise(options_.seed);
    }
    if (options_.is_first()) {
      log_ = std::make_unique<TrainLog>(log_path());
      refuse_foreign_output(start);  // again: nobody else writes the log from here on
      lost_until_ = log_->keep_until(state_.step);
    }
    describe_run(config);
    if (options_.ranks != nullptr) ranks::meet(*options_.ranks);
  }

  TrainSummary run();

 private:
  static TrainOptions checked(TrainOptions options) {
    validate(options);
    return options;
  }
  [[nodiscard]] std::filesystem::path log_path() const {
    return options_.log.empty() ? options_.out / kLogName : options_.log;
  }

  void refuse_foreign_output(const TrainStart& start) const;
  void open_data(const model::ModelConfig& config);
  void check_checkpoint(const std::filesystem::path& checkpoint) const;
  void check_adapters(const TrainStart& start, bool has_weights);
  void resume(const std::filesystem::path& checkpoint);
  [[nodiscard]] std::string copies_text() const;
  [[nodiscard]] std::string split_text() const;
  void describe_run(const model::ModelConfig& config);
  StepRecord train_one();
  void evaluate_now(StepRecord& record);
  void settle_overlap(const StepRecord& record);
  void sample_now();
  void save();
  [[nodiscard]] int asked_to_stop() const;
  [[nodiscard]] std::string last_checkpoint_text() const;

  TrainOptions options_;
  std::int64_t step_tokens_;
  double model_flop_;  ///< of a step, each rank's share, for MFU
  TrainingData data_;
  std::unique_ptr<OutputDirectory> output_;  ///< of the first rank
  Session session_;
  Progress progress_;
  CheckpointState state_;
  std::unique_ptr<DataLoader> loader_;
  std::unique_ptr<EvalBatches> validation_;
  std::int64_t eval_batch_ = 0;
  std::unique_ptr<TrainLog> log_;
  /// For checkpoints: the folder of the data may be prepared again, or go, while this trains.
  CheckpointTokenizer saved_tokenizer_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<OverlapTrial> overlap_;  ///< until it is decided
  TrainSummary summary_;
  std::int64_t lost_until_ = 0;  ///< the last step that was trained after the checkpoint
  std::string latest_problem_;
};

void Trainer::Loop::refuse_foreign_output(const TrainStart& start) const {
  const auto present = list_checkpoints(options_.out);
  if (!present.empty() && !start.may_resume) {
    throw core::UsageError(fmt::format("{} exists already: --resume continues it, or choose another --out",
                                       present.back().string()));
  }
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path log = log_path();
  const bool has_lines = fs::is_regular_file(log, ignored) && !fs::is_empty(log, ignored);
  if (!has_lines || !start.checkpoint.empty()) return;
  if (!start.may_resume) {
    throw core::UsageError(
        fmt::format("{} exists already: --resume continues it, or choose another", log.string()));
  }
  // Nothing is continued, so the log would be emptied: only that in --out is sure to be of this run.
  if (!fs::equivalent(log, options_.out / kLogName, ignored)) {
    throw core::UsageError(
        fmt::format("--log {} has lines, and there is no checkpoint in {} to continue: choose another --log",
                    log.string(), options_.out.string()));
  }
}

void Trainer::Loop::open_data(const model::ModelConfig& config) {
  if (data_.vocab_size > config.vocab) {
    throw core::UsageError(fmt::format("--vocab {} is below the {} tokens of {}", config.vocab,
                                       data_.vocab_size, data_.tokenizer.string()));
  }
  const auto vocab = static_cast<std::uint32_t>(config.vocab);
  loader_ = std::make_unique<DataLoader>(
      data_.train, DataLoaderOptions{.batch = options_.batch,
                                     .seq = options_.seq,
                                     .seed = options_.seed,
                                     .vocab_size = vocab,
                                     .ranks = options_.step.sharding.data,
                                     .rank = options_.step.sharding.copy_of(options_.step.rank)});
  eval_batch_ = options_.batch;
  validation_ = open_validation(data_.val, eval_batch_, options_.seq, vocab);
  if (!data_.tokenizer.empty()) {
    tokenizer_ = std::make_unique<text::Tokenizer>(text::Tokenizer::load(data_.tokenizer));
    saved_tokenizer_ = {.text = std::string(core::MappedFile(data_.tokenizer).text()),
                        .ends = text_ends(*tokenizer_)};
  }
  if (options_.sample_every > 0 && !tokenizer_) {
    throw core::UsageError("--sample-every needs a tokenizer: --data with a prepared directory");
  }
  if (options_.sample_every > 0 && options_.ranks != nullptr)
    throw core::UsageError(
        "--sample-every: text is sampled on one rank only; use rooflm generate afterwards");
  state_.model_name = config.name;
  state_.padded_vocab = config.padded_vocab;
  state_.data = data_.given;
  state_.val_data = data_.given_val;
  state_.shards = shard_names(data_);
  state_.options = to_texts(options_);
}

void Trainer::Loop::check_checkpoint(const std::filesystem::path& checkpoint) const {
  if (checkpoint.empty() || read_checkpoint_state(checkpoint).shards == state_.shards) return;
  throw core::UsageError(
      fmt::format("--data holds other training shards than {} was trained on", checkpoint.string()));
}

/// Adapters begin beside weights that have files: checkpoints name them.
void Trainer::Loop::check_adapters(const TrainStart& start, bool has_weights) {
  if (options_.checkpoint_layout == CheckpointLayout::parts)
    throw core::UsageError("--checkpoint-layout parts: adapters are saved whole; leave it out");
  if (!start.checkpoint.empty()) {
    state_.base = read_peft_config(start.checkpoint).base;
  } else if (has_weights && has_adapter(start.weights)) {
    throw core::UsageError(fmt::format("--model {} has adapters itself: export them into a model first",
                                       start.weights.string()));
  } else if (has_weights) {
    state_.base = std::filesystem::absolute(start.weights);
  } else {
    throw core::UsageError(
        fmt::format("--lora {} trains adapters on frozen weights: give a --model DIR that has weights",
                    options_.step.lora));
  }
}

void Trainer::Loop::resume(const std::filesystem::path& checkpoint) {
  const CheckpointState saved = read_checkpoint_state(checkpoint);
  load_checkpoint(checkpoint, session_);
  if (options_.is_first()) {
    latest_problem_ = problem_of_latest(options_.out);
    settle_checkpoints(options_.out, options_.keep);
  }
  loader_->seek(saved.loader);
  state_.step = saved.step;
  state_.tokens = saved.tokens;
  state_.loader = saved.loader;
  state_.best_val_loss = saved.best_val_loss;
  summary_.checkpoint = checkpoint;
}

/// "8", or "2 x 8" for two copies of a batch of 8.
std::string Trainer::Loop::copies_text() const {
  const int copies = options_.step.sharding.data;
  return copies == 1 ? std::to_string(options_.batch) : fmt::format("{} x {}", copies, options_.batch);
}

std::string Trainer::Loop::split_text() const {
  const compile::Sharding& split = options_.step.sharding;
  return fmt::format("{} ranks: dp {}, ZeRO {}, {}tp {}{}, pp {}", split.ranks(), split.data, split.zero,
                     split.context > 1 ? fmt::format("cp {}, ", split.context) : "", split.tensor,
                     split.sequence_parallel ? " with sequence parallelism" : "", split.pipeline);
}

void Trainer::Loop::describe_run(const model::ModelConfig& config) {
  progress_.message(fmt::format(
      "{}: {} parameters, {} tokens per step ({} x {} x {}), {} tokens of data ({} steps an epoch)",
      config.name, core::format_si(static_cast<double>(model::parameter_count(config))), step_tokens_,
      options_.step.micro_batches, copies_text(), options_.seq,
      core::format_si(static_cast<double>(loader_->total_tokens())),
      std::max<std::uint64_t>(1, loader_->windows() * static_cast<std::uint64_t>(options_.seq) /
                                     static_cast<std::uint64_t>(step_tokens_))));
  if (options_.ranks != nullptr) {
    progress_.message(split_text());
    overlap_.emplace(session_.training_engine(), options_.ranks.get(), options_.collectives);
  }
  if (options_.peak_flop_per_s) {
    progress_.message(fmt::format("MFU = {} * {}, peak {}FLOP/s",
                                  model::model_flop_formula(model::trained_beside(options_.step.lora)),
                                  core::kMfuFormula, core::format_si(*options_.peak_flop_per_s)));
  }
  if (!validation_) progress_.message("no validation: there are no validation tokens, or fewer than --seq");
  if (!summary_.checkpoint.empty()) {
    if (!latest_problem_.empty()) progress_.message(latest_problem_);
    const std::string lost =
        lost_until_ <= state_.step
            ? ""
            : fmt::format("; {} steps after it, up to step {}, are not in it and are trained again",
                          lost_until_ - state_.step, lost_until_);
    progress_.message(
        fmt::format("continuing after step {} of {}{}", state_.step, summary_.checkpoint.string(), lost));
  }
}

StepRecord Trainer::Loop::train_one() {
  const double start = now_s();
  const double waited = loader_->wait_s();
  for (int i = 0; i < options_.step.micro_batches; ++i) session_.set_micro_batch(i, loader_->next());
  StepRecord r;
  r.loader_wait_s = loader_->wait_s() - waited;
  r.lr = learning_rate(options_.schedule, state_.step);
  if (overlap_) overlap_->begin_step();
  const Session::Update update = session_.update(r.lr, state_.step + 1);
  const double elapsed = now_s() - start;
  state_.step += 1;
  state_.tokens += static_cast<std::uint64_t>(step_tokens_);
  state_.loader = loader_->state();
  r.step = state_.step;
  r.loss = update.loss;
  r.grad_norm = update.grad_norm;
  r.loss_scale = update.loss_scale;
  r.skipped_steps = update.skipped_updates;
  r.is_skipped = update.is_skipped;
  r.tokens = state_.tokens;
  r.tokens_per_s = static_cast<double>(step_tokens_) / elapsed;
  r.times = update.times;
  r.peak_flop_per_s = options_.peak_flop_per_s;
  r.mfu = core::mfu_of(model_flop_, elapsed, r.peak_flop_per_s);
  summary_.train_s += elapsed;
  summary_.loader_wait_s += r.loader_wait_s;
  summary_.loss = r.loss;
  summary_.loss_scale = r.loss_scale;
  summary_.skipped_steps = r.skipped_steps;
  return r;
}

std::string Trainer::Loop::last_checkpoint_text() const {
  if (summary_.checkpoint.empty()) return "there is no checkpoint yet";
  return fmt::format("the last good checkpoint is {}", summary_.checkpoint.string());
}

void Trainer::Loop::evaluate_now(StepRecord& record) {
  const compile::StepOptions& step = options_.step;
  const Evaluation e =
      evaluate(session_, *validation_, static_cast<std::uint64_t>(options_.eval_batches),
               {.ranks = step.sharding.data_ranks(), .rank = step.rank.data, .copies = step.sharding.data});
  if (!std::isfinite(e.loss)) {
    throw core::CheckFailed(
        fmt::format("step {}: the validation loss is {}; {}", record.step, e.loss, last_checkpoint_text()));
  }
  record.val_loss = e.loss;
  summary_.val_loss = e.loss;
  if (!state_.best_val_loss || e.loss < *state_.best_val_loss) state_.best_val_loss = e.loss;
  std::string beside;
  if (data_.val_unigram_entropy) {
    beside = fmt::format("  (unigram entropy of the validation text {:.4f})", *data_.val_unigram_entropy);
  }
  progress_.message(fmt::format("step {}  val loss {:.4f}{}", record.step, e.loss, beside));
}

/// After each step: reports the choice of overlap once it is made.
void Trainer::Loop::settle_overlap(const StepRecord& record) {
  if (!overlap_) return;
  overlap_->end_step(record.times);
  if (!overlap_->is_done()) return;
  if (const std::string text = overlap_->sentence(); !text.empty())
    progress_.message(fmt::format("step {}  {}", record.step, text));
  overlap_.reset();
}

void Trainer::Loop::sample_now() {
  std::string text;
  const SamplingOptions sampling{.tokens = kSampleTokens,
                                 .seed = options_.seed + static_cast<std::uint64_t>(state_.step),
                                 .window = options_.seq};
  try {
    generate(session_, *tokenizer_, {&options_.prompt, 1}, sampling,
             [&](std::size_t /*text*/, const std::string& more) { text += more; });
  } catch (const core::OutOfMemory& error) {
    return progress_.message(fmt::format("step {}  no sample: {}", state_.step, error.what()));
  }
  progress_.message(fmt::format("step {}  sample: {}{}", state_.step, core::printable_lines(options_.prompt),
                                core::printable_lines(text)));
}

void Trainer::Loop::save() {
  const bool in_parts = options_.ranks != nullptr && options_.checkpoint_layout == CheckpointLayout::parts;
  state_.parts = in_parts ? options_.ranks->size() : 0;
  if (options_.ranks != nullptr) options_.ranks->set_step(state_.step);
  if (!options_.is_first())
    return in_parts ? save_part(options_.out, state_, session_) : session_.serve_parts();
  try {
    if (options_.gemm_choices) state_.gemm_choices = options_.gemm_choices();
    summary_.checkpoint = save_checkpoint(options_.out, state_, session_, saved_tokenizer_, options_.keep);
    if (!in_parts) session_.end_parts();
  } catch (const core::CheckFailed& error) {
    throw core::CheckFailed(
        fmt::format("after step {}: {}; {}", state_.step, error.what(), last_checkpoint_text()));
  }
  progress_.message(fmt::format("step {}  saved {}", state_.step, summary_.checkpoint.string()));
}

/// The signal that asked to stop, or 0: of all ranks after the same step.
int Trainer::Loop::asked_to_stop() const {
  const int own = core::StopSignals::received();
  if (options_.ranks == nullptr) return own;
  options_.ranks->set_step(state_.step + 1);
  options_.ranks->set_op("agreeing whether to go on");
  return ranks::most(*options_.ranks, own);
}

TrainSummary Trainer::Loop::run() {
  const core::StopSignals signals;
  const std::int64_t first = state_.step;
  const std::int64_t steps = options_.schedule.steps;
  std::int64_t saved = summary_.checkpoint.empty() ? -1 : state_.step;
  std::optional<double> val_loss;
  int signal = 0;
  while (state_.step < steps && (signal = asked_to_stop()) == 0) {
    StepRecord record = train_one();
    settle_overlap(record);
    check_finite(record, last_checkpoint_text());
    const std::int64_t step = state_.step;
    if (validation_ && (is_due(step, options_.eval_every) || step == steps)) evaluate_now(record);
    val_loss = record.val_loss;
    if (log_) log_->append(record);
    if (options_.on_step && options_.is_first()) options_.on_step(record, session_.training_engine());
    progress_.step(record);
    if (is_due(step, options_.sample_every)) sample_now();
    if (is_due(step, options_.checkpoint_every)) {
      save();
      saved = step;
    }
  }
  if (saved != state_.step && (state_.step > 0 || signal != 0)) save();
  summary_.signal = state_.step < steps ? signal : 0;
  if (summary_.signal != 0) {
    progress_.message(fmt::format("stopped by {} after step {}; --resume continues",
                                  summary_.signal == SIGINT ? "SIGINT" : "SIGTERM", state_.step));
  }
  summary_.trained_steps = state_.step - first;
  summary_.step = state_.step;
  summary_.val_loss = val_loss;
  summary_.best_val_loss = state_.best_val_loss;
  summary_.tokens = state_.tokens;
  progress_.finish();
  return summary_;
}

Trainer::Trainer(backends::Backend& backend, const model::ModelConfig& config, const TrainOptions& options,
                 const TrainingData& data, const TrainStart& start, std::FILE* stream)
    : loop_(std::make_unique<Loop>(backend, config, options, data, start, stream)) {}
Trainer::~Trainer() = default;

TrainSummary Trainer::run() { return loop_->run(); }

}  // namespace rooflm::train
