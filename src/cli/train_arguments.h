// The options of `rooflm train` as typed, and the plan that they make.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cli/options/config_options.h"
#include "cli/output_rule.h"
#include "cli/table.h"
#include "lab/training.h"

namespace rooflm::cli {

class TrainArguments {
 public:
  TrainArguments();
  /// Declares the options; `line` must live until `plan` is called.
  void add_to(CommandLine& line);

  /// What to train and how. With --resume, options that were not given come from the newest checkpoint.
  /// Throws core::UsageError for contradictions and core::InputError for damaged files.
  /// `ranks`: those of the job, who all get the same plan, each with its place.
  [[nodiscard]] lab::TrainPlan plan(const lab::Ranks& ranks) const;
  [[nodiscard]] TableStyle style() const { return table_.style(); }
  /// Of -o; "" for none.
  [[nodiscard]] const std::string& record() const { return record_; }
  [[nodiscard]] bool overwrites() const { return overwrite_; }
  [[nodiscard]] bool is_dry_run() const { return dry_run_; }
  /// The folder and files that training writes.
  [[nodiscard]] std::vector<OutputPath> outputs() const;

 private:
  void check_paths() const;
  [[nodiscard]] std::map<std::string, std::string> values_of(const lab::TrainPlan& plan) const;
  [[nodiscard]] bool was_given(const std::string& option) const;
  [[nodiscard]] bool model_was_given() const;
  [[nodiscard]] train::TrainOptions typed_options(const lab::Point& point) const;
  [[nodiscard]] model::ModelConfig new_model(const std::string& model, const lab::Point& point,
                                             const train::TrainingData& data) const;
  [[nodiscard]] lab::TrainPlan plan_alone(const lab::Ranks& ranks) const;
  void plan_resumed(lab::TrainPlan& plan, const lab::Point& point,
                    const std::filesystem::path& checkpoint) const;

  const CommandLine* line_ = nullptr;
  ConfigOptions config_{lab::step_keys(), {"seed", "threads", "search_products", "overlap", "collectives"}};
  std::map<std::string, std::string> fields_;  ///< options of train::option_fields() by name
  std::vector<std::string> data_, val_data_;
  std::string out_, log_, memory_limit_, peak_, record_;
  TableOptions table_;
  bool resume_ = false;
  bool no_peak_ = false;
  bool overwrite_ = false;
  bool dry_run_ = false;
};

}  // namespace rooflm::cli
