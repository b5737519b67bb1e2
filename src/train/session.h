// A model on a device: its weights, its optimizer state, and the engines that train and evaluate it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "compile/recipe.h"
#include "core/file.h"
#include "engines/engine.h"
#include "engines/tensor_store.h"
#include "model/config.h"
#include "model/parameters.h"
#include "ranks/transport.h"
#include "train/data_loader.h"

namespace rooflm::train {

/// The runtime input of the optimizer at update `t` (the first is 1): {lr, 1 - beta1^t, 1 - beta2^t, 0}.
std::array<float, 4> optimizer_hyper(const passes::OptimizerOptions& options, double lr, std::int64_t t);

/// Weights and optimizer state in one store, and engines on it: for training steps, for losses, and those of
/// others, as a Decoder. Weights are fp32; copies in the compute dtype are kept up to date here. Make the
/// engines that will be needed before the weights are filled in: what does not fit is then found out at once.
/// Used by one thread.
class Session {
 public:
  /// `step`: how programs are made, for all engines. `memory_limit_bytes`: of everything together, 0 for what
  /// the backend has free. The backend must outlive the session. `ranks`: those over which `step` is split,
  /// nullptr for one; they outlive the session too. Then all ranks call the same functions.
  Session(backends::Backend& backend, model::ModelConfig config, compile::StepOptions step,
          double memory_limit_bytes = 0, ranks::Transport* ranks = nullptr);

  /// Engines for batches of B windows of T tokens. Throw core::OutOfMemory, core::Unavailable, and
  /// core::UsageError when T exceeds the model's positions.
  void make_training_engine(std::int64_t batch, std::int64_t seq);
  void make_loss_engine(std::int64_t batch, std::int64_t seq);

  /// Random weights by model::initial_values, adapters included; optimizer state is left as it is.
  void initialise(std::uint64_t seed);
  /// Weights of a Hugging Face directory, or of a checkpoint of parts. Adapters that the directory has are
  /// this session's own, or are added to the weights of their base (train/adapter_files.h). Throws
  /// core::InputError as model::load_weights does.
  void load(const std::filesystem::path& directory);
  /// Adapters without a file: random, by `seed`.
  void initialise_adapters(std::uint64_t seed);
  /// Values of one parameter, fp32.
  [[nodiscard]] std::vector<float> weight(const std::string& name) const { return store_.read<float>(name); }

  /// Optimizer state of the whole model, in the order of its names.
  struct StateTensor {
    std::string name;
    core::Shape shape;
    core::DType dtype = core::DType::f32;  ///< others are on one rank, and read and written as they are
  };
  [[nodiscard]] std::vector<StateTensor> optimizer_state() const;
  /// All values, fp32, of a weight or of optimizer state. Of several ranks the first calls it, and the others
  /// `serve_parts`, which returns when the first calls `end_parts`.
  void read_whole(const std::string& name, std::span<float> values) const;
  void end_parts() const;
  void serve_parts() const;
  /// For what a rank does while others wait for it; empty where it is alone.
  [[nodiscard]] core::OnProgress keep_waiting() const;
  /// Those over which steps are split, or nullptr.
  [[nodiscard]] ranks::Transport* transport() const { return ranks_; }
  /// Keeps what this rank has of a whole weight or state.
  void write_whole(const std::string& name, std::span<const float> values) {
    store_.write_part(name, values);
  }

  /// The result of one update; the loss is the mean over all its micro-batches.
  struct Update {
    double loss = 0;
    std::optional<double> grad_norm{};  ///< before clipping; absent without clipping
    /// For the next step, and how many updates were skipped since the beginning, this one included; absent
    /// without loss scaling.
    std::optional<double> loss_scale{};
    std::int64_t skipped_updates = 0;
    bool is_skipped = false;  ///< gradients were not finite, so only the scale changed
    engines::StepTimes times;
  };
  /// Fills in the tokens and targets [B, T] of micro-batch `index`. Needs the training engine, as `update`.
  void set_micro_batch(int index, const Batch& batch);
  /// One training step on the micro-batches set before: update number `t`, 1 <= t, skipped ones included.
  Update update(double lr, std::int64_t t);

  /// Mean cross-entropy of one batch in nats. Needs the loss engine.
  double loss(const Batch& batch);

  /// An engine on these weights for another program, ready to run where they are filled in. `caches` as
  /// engines::Engine has it; `taken_bytes`: what the caller holds already of the memory that is allowed.
  std::unique_ptr<engines::Engine> make_engine(program::Program program,
                                               engines::TensorStore* caches = nullptr,
                                               double taken_bytes = 0);

  /// The engine of training steps, which must exist.
  [[nodiscard]] engines::Engine& training_engine() { return *training_; }
  [[nodiscard]] const model::ModelConfig& config() const { return config_; }
  [[nodiscard]] const compile::StepOptions& step_options() const { return step_; }
  [[nodiscard]] engines::TensorStore& store() { return store_; }
  [[nodiscard]] const engines::TensorStore& store() const { return store_; }

 private:
  void bind_weights();
  void load_whole(const std::filesystem::path& directory);
  void copy_weights();
  void read_loss_scale(Update& update);
  [[nodiscard]] double read_loss(engines::Engine& engine) const;

  model::ModelConfig config_;
  compile::StepOptions step_;
  double memory_limit_bytes_;
  ranks::Transport* ranks_;
  engines::TensorStore store_;
  std::unique_ptr<engines::Engine> training_, loss_;
  std::int64_t training_seq_ = 0;  ///< of whole sequences
  bool has_weights_ = false;
  std::optional<std::int64_t> skipped_updates_;  ///< absent: the store knows
};

}  // namespace rooflm::train
