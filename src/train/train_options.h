// All options of a training run, as values and as text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compile/recipe.h"
#include "core/named.h"
#include "engines/engine.h"
#include "ranks/transport.h"
#include "record/config.h"
#include "train/overlap_trial.h"
#include "train/schedule.h"
#include "train/train_log.h"

namespace rooflm::train {

using core::name_of;

/// Who writes what of a checkpoint of several ranks. whole: the first rank all of it, as one rank would.
/// parts: each rank what it has.
enum class CheckpointLayout : std::uint8_t { whole, parts };
constexpr auto names_of(CheckpointLayout) {
  return core::named<CheckpointLayout>(
      "layout of checkpoints", {{CheckpointLayout::whole, "whole"}, {CheckpointLayout::parts, "parts"}});
}

struct TrainOptions {
  std::vector<std::filesystem::path> data;  ///< a prepared directory, or shards
  std::filesystem::path out;                ///< directory of the checkpoints
  compile::StepOptions step{};              ///< engine, dtype, accumulation, optimizer, ...
  std::int64_t batch = 8;                   ///< B: windows per micro-batch
  std::int64_t seq = 256;                   ///< T
  Schedule schedule{};
  std::uint64_t seed = 0;             ///< of initial weights, shuffling and sampling
  std::int64_t eval_every = 100;      ///< steps between evaluations; 0: at the end only
  std::int64_t eval_batches = 20;     ///< most batches of one evaluation
  std::int64_t checkpoint_every = 0;  ///< steps between checkpoints; 0: at the end only
  std::int64_t keep = 2;              ///< checkpoints to keep
  CheckpointLayout checkpoint_layout = CheckpointLayout::whole;
  std::int64_t sample_every = 0;  ///< steps between samples; 0: none
  std::string prompt;             ///< of samples; empty: the end-of-text token
  std::int64_t line_every = 10;   ///< steps between lines where there is no terminal
  std::filesystem::path log;      ///< JSONL; empty: log.jsonl in `out`
  /// The GEMM algorithms that the backend runs, for checkpoints: a run that goes on runs the same, so that it
  /// continues bit for bit. Absent where there is nothing to choose.
  std::function<std::string()> gemm_choices{};
  /// Called after each step was logged, with the engine that ran it.
  std::function<void(const StepRecord&, engines::Engine&)> on_step{};
  double memory_limit_bytes = 0;            ///< 0: what is free
  std::optional<double> peak_flop_per_s{};  ///< what the MFU divides by; absent: no MFU
  /// The ranks that train together, nullptr for one; `batch` is that of each data-parallel copy.
  std::shared_ptr<ranks::Transport> ranks{};
  CollectiveWishes collectives{};
  [[nodiscard]] bool is_first() const { return ranks::is_first(ranks); }
  /// Asked for peak_flop_per_s when the output directory, the data and the vocabulary have been checked.
  std::function<std::optional<double>()> find_peak{};
};

/// Throws core::UsageError naming the option and its value when one is out of range.
void validate(const TrainOptions& options);

/// Options as text by their name on the command line ("grad-accum" -> "4"): what a checkpoint remembers.
using OptionTexts = std::map<std::string, std::string>;

/// One option of those that a checkpoint remembers.
struct OptionField {
  std::string name;  ///< its option without dashes
  record::Field facts;
  std::string values;  ///< that it accepts: "N", "adamw|sgd"
  /// It affects results, so a continued run must keep it.
  bool is_fixed;
  std::function<std::string(const TrainOptions&)> get{};
  /// Throws core::UsageError when the text does not parse.
  std::function<void(TrainOptions&, const std::string&)> set{};
  /// The value in checkpoints without this option; none: all checkpoints have it.
  std::optional<std::string> initial{};
};
const std::vector<OptionField>& option_fields();

OptionTexts to_texts(const TrainOptions& options);

/// The options of a run that continues: where `was_given` says no, what the checkpoint remembers takes the
/// place of the value in `options`. `source` names the checkpoint in messages. Throws core::UsageError when a
/// fixed option was given with another value than remembered (but --steps may grow when the schedule is
/// constant, --batch and --grad-accum may change when the copies do and a step has as many sequences, and
/// --attention may become flash when ranks begin to share sequences, as it does where it is not given), and
/// core::InputError when the checkpoint lacks an option. Another number of ranks is taken up by the number of
/// copies, and by the batch of each where that is not given.
TrainOptions continued(TrainOptions options, const OptionTexts& remembered,
                       const std::function<bool(const std::string&)>& was_given, const std::string& source);

}  // namespace rooflm::train
