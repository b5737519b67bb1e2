// One training run: its backend, the peak that its MFU divides by, the loop, and what a record keeps of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "lab/job.h"
#include "lab/point.h"
#include "record/rows.h"
#include "record/writer.h"
#include "train/trainer.h"

namespace rooflm::lab {

/// Everything that a training run needs but its backend. What the run computes is in `config` and `options`;
/// of `point` only the device and its kernels count.
struct TrainPlan {
  model::ModelConfig config;
  train::TrainOptions options;
  train::TrainingData data;
  train::TrainStart start;
  Point point;
  std::string gemm_choices;   ///< of the checkpoint that it continues
  Ranks ranks{};              ///< that train together
  bool measures_peak = true;  ///< unless options.peak_flop_per_s has one already
};

/// What a record has of a run but its samples and its log.
struct TrainedRun {
  record::Run run;
  int signal = 0;  ///< that stopped it, or 0
  std::vector<record::Fact> facts;
};

/// The run as it will be: what a checkpoint said wins over what was typed, and the vocabulary is that of the
/// data.
Point point_of(const TrainPlan& plan);

class Training {
 public:
  /// Makes the backend, checks the output directory and the data, measures the peak or takes the one that is
  /// kept, and loads or initialises the weights. Throws as train::Trainer does, core::Unavailable, and
  /// core::UsageError for a device that runs nothing.
  explicit Training(TrainPlan plan);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  ~Training() = default;

  /// Trains. With a record, a run of kind "train" is added to it: its configuration and facts, each step's
  /// times as samples, and its log as cells of the series record::kTrainingSeries. The status is "success",
  /// "interrupted" after a signal, "oom", or "failed" when this throws, as train::Trainer::run does. A step
  /// waits for data before its samples begin. No step is a warm-up. To be called once.
  TrainedRun run(record::Writer* record);
  /// Those that the peak was measured with.
  [[nodiscard]] const std::vector<record::Ceiling>& ceilings() const { return ceilings_; }

 private:
  void measure_peak();
  [[nodiscard]] std::vector<record::Fact> known_facts() const;
  [[nodiscard]] std::vector<record::Fact> trained_facts(const train::TrainSummary& summary) const;
  train::TrainSummary train(record::Writer* record, std::int64_t run);

  TrainPlan plan_;
  Point point_;  ///< what runs
  std::vector<record::Ceiling> ceilings_;
  std::optional<record::Fact> peak_;
  std::unique_ptr<backends::Backend> backend_;
  std::function<void(const train::StepRecord&, engines::Engine&)> on_step_;
  std::unique_ptr<train::Trainer> trainer_;
};

}  // namespace rooflm::lab
