// The options of commands that load a model's weights: eval and generate.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "backends/backend.h"
#include "cli/config_options.h"
#include "lab/job.h"
#include "train/session.h"

namespace rooflm::cli {

/// A model that is ready to be loaded, and what it runs on.
struct LoadedModel {
  std::filesystem::path directory;  ///< with config.json and the weights
  lab::Point point;
  std::unique_ptr<backends::Backend> backend;
  std::unique_ptr<train::Session> session;  ///< its weights are not there yet: make engines, then load
};

/// `--model DIR --engine --attention --dtype --device --threads --autotune --memory-limit`, as typed.
class InferenceOptions {
 public:
  InferenceOptions() = default;
  /// With --dp and --tp: several ranks share the texts and the layers.
  static InferenceOptions with_split() {
    InferenceOptions options;
    options.config_ = {"engine",          "attention", "dtype", "device", "threads",
                       "search_products", "base",      "dp",    "tp"};
    return options;
  }
  void add_to(CommandLine& line);
  /// What --model says.
  [[nodiscard]] const std::string& model() const { return model_; }
  /// `batch` and `seq` as typed. Throws core::UsageError when the model is a preset, which has no weights. Of
  /// several ranks each has the whole model, or with --tp its part of the layers; throws also when they were
  /// told different things, or are not as many as --dp and --tp say.
  [[nodiscard]] LoadedModel open(const std::string& batch, const std::string& seq,
                                 const lab::Ranks& ranks = nullptr) const;

 private:
  std::string model_;
  ConfigOptions config_{"engine", "attention", "dtype", "device", "threads", "search_products", "base"};
  std::string memory_limit_;
};

}  // namespace rooflm::cli
