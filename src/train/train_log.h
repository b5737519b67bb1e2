// The log of a training run: one line of JSON per step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/system/descriptor.h"
#include "engines/engine.h"

namespace rooflm::train {

/// What one step measured. Times are wall time in seconds.
struct StepRecord {
  std::int64_t step = 0;  ///< steps done, this one included: the first is 1
  double loss = 0;        ///< mean cross-entropy of the step's tokens in nats, before its update
  double lr = 0;
  std::optional<double> grad_norm{};  ///< before clipping; absent without clipping
  std::uint64_t tokens = 0;           ///< trained on since the beginning, this step included
  double tokens_per_s = 0;            ///< of this step, waiting for data included
  std::optional<double> mfu{};        ///< absent without a peak to divide by
  std::optional<double> peak_flop_per_s{};
  double loader_wait_s = 0;    ///< spent waiting for batches in this step
  engines::StepTimes times{};  ///< of the step itself, without waiting for data
  std::optional<double> val_loss{};
  std::optional<double> loss_scale{};  ///< for the next step; absent where the loss is not scaled
  std::int64_t skipped_steps = 0;      ///< whose gradients were not finite, since the beginning
  bool is_skipped = false;             ///< this one's were not
};

/// Appends to a JSONL file, each line flushed: {"step", "loss", "lr", "grad_norm", "tokens", "tokens_per_s",
/// "mfu", "peak_flop_per_s", "loader_wait_s", "step_s", "val_loss"}, null where absent, and where the loss is
/// scaled "loss_scale" and "skipped_steps". Move-only.
class TrainLog {
 public:
  /// Opens `path`, a file, made when missing, or a device or a pipe. Holds a file's lock, which goes with the
  /// process. Throws core::UsageError when another run holds it, core::InputError when it cannot be written.
  explicit TrainLog(const std::filesystem::path& path);

  /// Removes lines of steps beyond `step`, and a last line without an end: what a run that was interrupted
  /// had written after its checkpoint. The last step that was removed, or `step`. Throws core::InputError
  /// when the file holds something else than such a log.
  std::int64_t keep_until(std::int64_t step);

  /// Throws core::InputError when the disk is full.
  void append(const StepRecord& record);

 private:
  std::filesystem::path path_;
  core::Descriptor file_;
  bool is_regular_ = false;
};

}  // namespace rooflm::train
