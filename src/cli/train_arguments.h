// The options of `rooflm train` as typed, and what they add up to.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/config_options.h"
#include "train/trainer.h"

namespace rooflm::cli {

/// Everything that a training run needs but its backend.
struct TrainPlan {
  model::ModelConfig config;
  train::TrainOptions options;
  train::TrainingData data;
  train::TrainStart start;
  lab::Point point;          ///< device, threads and which kernels
  std::string gemm_choices;  ///< of the checkpoint that it continues
};

class TrainArguments {
 public:
  TrainArguments();
  /// Declares the options; `line` must live until `plan` is called.
  void add_to(CommandLine& line);

  /// What to train and how. With --resume, options that were not given come from the newest checkpoint.
  /// Throws core::UsageError for contradictions and core::InputError for damaged files.
  [[nodiscard]] TrainPlan plan() const;
  /// What MFU divides by, if the user said it.
  [[nodiscard]] std::optional<double> peak_flop_per_s() const;
  [[nodiscard]] bool measures_peak() const { return !no_peak_; }
  [[nodiscard]] const std::string& format() const { return format_; }

 private:
  [[nodiscard]] bool was_given(const std::string& option) const;
  [[nodiscard]] bool model_was_given() const;
  [[nodiscard]] train::TrainOptions typed_options(const lab::Point& point) const;
  [[nodiscard]] model::ModelConfig new_model(const std::string& model, const lab::Point& point,
                                             const train::TrainingData& data) const;
  void plan_resumed(TrainPlan& plan, const lab::Point& point, const std::filesystem::path& checkpoint) const;

  const CommandLine* line_ = nullptr;
  ConfigOptions config_{"model", "arch",    "layers",    "heads",      "kv_heads",       "d_model", "d_ff",
                        "vocab", "batch",   "seq",       "engine",     "attention",      "dtype",   "device",
                        "seed",  "threads", "recompute", "grad_accum", "search_products"};
  std::map<std::string, std::string> fields_;  ///< options of train::option_fields() by name
  std::vector<std::string> data_, val_data_;
  std::string out_, log_, memory_limit_, peak_;
  std::string format_ = "table";
  bool resume_ = false;
  bool no_peak_ = false;
};

}  // namespace rooflm::cli
