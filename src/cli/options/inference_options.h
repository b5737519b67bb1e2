// The options of commands that load a model's weights: eval and generate.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "cli/options/config_options.h"
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
  InferenceOptions() : InferenceOptions({"base"}) {}
  /// With --dp and --tp: several ranks share the texts and the layers.
  static InferenceOptions with_split() { return InferenceOptions({"base", "dp", "tp"}); }
  /// Without --base: weights as files have them.
  static InferenceOptions without_base() { return InferenceOptions(Keys{}); }
  void add_to(CommandLine& line);
  /// The same for another model, of which `option` says where it is.
  [[nodiscard]] InferenceOptions for_model(const char* option, const std::string& model) const {
    InferenceOptions other = *this;
    other.option_ = option;
    other.model_ = model;
    return other;
  }
  /// What --model says.
  [[nodiscard]] const std::string& model() const { return model_; }
  /// `batch` and `seq` as typed. Throws core::UsageError when the model is a preset, which has no weights. Of
  /// several ranks each has the whole model, or with --tp its part of the layers; throws also when they were
  /// told different things, or are not as many as --dp and --tp say.
  [[nodiscard]] LoadedModel open(const std::string& batch, const std::string& seq,
                                 const lab::Ranks& ranks = nullptr) const;
  /// The same without backend and session: nothing is allocated.
  [[nodiscard]] LoadedModel describe(const std::string& batch, const std::string& seq,
                                     const lab::Ranks& ranks = nullptr) const;

 private:
  using Keys = std::initializer_list<std::string_view>;
  explicit InferenceOptions(Keys more)
      : config_({"engine", "attention", "dtype", "device", "threads", "search_products"}, more) {}

  const char* option_ = "--model";
  std::string model_;
  ConfigOptions config_;
  std::string memory_limit_;
};

}  // namespace rooflm::cli
