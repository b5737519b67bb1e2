// The options of commands that load a model's weights: eval and generate.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "backends/backend.h"
#include "cli/model_options.h"
#include "train/session.h"

namespace rooflm::cli {

/// A model that is ready to be loaded, and what it runs on.
struct LoadedModel {
  std::filesystem::path directory;  ///< with config.json and the weights
  Point point;
  std::unique_ptr<backends::Backend> backend;
  std::unique_ptr<train::Session> session;  ///< its weights are not there yet: make engines, then load
};

/// `--model DIR --engine --attention --dtype --device --threads --memory-limit`, as typed.
class InferenceOptions {
 public:
  void add_to(CLI::App& app);
  /// `batch` and `seq` as typed. Throws core::UsageError when the model is a preset, which has no weights.
  [[nodiscard]] LoadedModel open(const std::string& batch, const std::string& seq) const;

 private:
  std::string model_;
  RunOptions run_;
  std::string threads_ = "0";
  std::string memory_limit_;
};

}  // namespace rooflm::cli
