// The training loop.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "backends/backend.h"
#include "model/config.h"
#include "train/checkpoint.h"
#include "train/train_options.h"
#include "train/training_data.h"

namespace rooflm::train {

/// Where a run begins: with random weights unless one of these is set.
struct TrainStart {
  std::filesystem::path weights;     ///< a Hugging Face directory to fine-tune
  std::filesystem::path checkpoint;  ///< of this run, to continue; its options have been applied already
  /// A missing checkpoint is fine, and so is the log of a run that ended before its first one.
  bool may_resume = false;
};

struct TrainSummary {
  std::int64_t step = 0;                  ///< updates done in all
  std::optional<double> loss{};           ///< of the last step; absent when none was done
  std::optional<double> val_loss{};       ///< after the last step
  std::optional<double> best_val_loss{};  ///< of the whole run
  std::uint64_t tokens = 0;
  std::int64_t trained_steps = 0;      ///< of this process
  double train_s = 0;                  ///< in those, waiting for data included
  double loader_wait_s = 0;            ///< of train_s
  int signal = 0;                      ///< that stopped the run, or 0
  std::filesystem::path checkpoint;    ///< the newest one; empty when there is none
  std::optional<double> loss_scale{};  ///< for the next step; absent where the loss is not scaled
  std::int64_t skipped_steps = 0;      ///< whose gradients were not finite, of the whole run
};

/// One training run: engines, weights, data, log, checkpoints. The constructor checks everything that can be
/// rejected: options (core::UsageError), files (core::InputError), memory (core::OutOfMemory).
class Trainer {
 public:
  /// Progress goes to `stream` (nullptr: nowhere). The backend must outlive the trainer.
  Trainer(backends::Backend& backend, const model::ModelConfig& config, const TrainOptions& options,
          const TrainingData& data, const TrainStart& start, std::FILE* stream = stderr);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  /// Trains until the last step, or until SIGINT or SIGTERM asks to stop, and saves a checkpoint. Throws
  /// core::CheckFailed, naming the step and the last checkpoint, when the loss, the gradient norm or a
  /// parameter is not finite, and core::InputError when the disk is full; checkpoints stay as they are then.
  TrainSummary run();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace rooflm::train
