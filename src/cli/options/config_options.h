// The options that make up a run's configuration: those of record::config_fields().
#pragma once

#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"
#include "lab/point.h"
#include "record/config.h"

namespace rooflm::cli {

/// The dtypes that `line` offers: "fp32|bf16|fp16".
std::string dtype_names(const CommandLine& line);
/// The same of single ops, which lab::parse_operand_dtype takes: without fp8.
std::string operand_dtype_names(const CommandLine& line);
/// Those of all GPUs, for commands that look at devices that are not here.
std::string dtype_names_of_gpus();
/// The full name of `typed`; for "" the fastest device here, with a line on standard error.
std::string device_or_default(const std::string& typed);

/// Options by the keys of the field table, as typed; each may be a list, and lists multiply into a sweep.
class ConfigOptions {
 public:
  /// The fields with these keys, all of those that have an option when there are none.
  ConfigOptions(std::initializer_list<std::string_view> keys = {});  // NOLINT(google-explicit-constructor)
  /// Those of two lists.
  ConfigOptions(const std::vector<std::string_view>& keys, std::initializer_list<std::string_view> more);

  /// Declares them in the table's groups. `line` must not outlive this.
  void add_to(CommandLine& line);
  /// Offers these dtypes: "fp32|bf16".
  void add_to(CommandLine& line, const std::string& dtypes);

  /// The typed or default value: "fp32,bf16"; "yes" or "no" for a flag; "" if not given.
  [[nodiscard]] const std::string& text(std::string_view key) const { return texts_.at(std::string(key)); }
  /// Another help text than the table's.
  void explain(std::string_view key, const std::string& help) { helps_[std::string(key)] = help; }
  void set(std::string_view key, const std::string& text) { texts_[std::string(key)] = text; }
  /// Forgets the initial values: "" then means that nothing was typed.
  void clear();
  /// Takes the initial value for each text that is empty.
  void fill();
  [[nodiscard]] bool has(std::string_view key) const { return texts_.contains(std::string(key)); }

  /// All combinations, in the order model, sizes, batch, seq, device, recompute, grad-accum, others, dtype,
  /// engine, attention (the last changes fastest). Throws as lab::make_points.
  [[nodiscard]] std::vector<lab::Point> sweep(lab::ModelUse use = lab::ModelUse::compute) const;
  /// All combinations of these fields, in this order; dp is absent if it was not given.
  [[nodiscard]] std::vector<record::Config> combinations(std::span<const std::string_view> keys) const;
  /// For commands that take no lists: core::UsageError when the options name more than one configuration.
  [[nodiscard]] lab::Point single(lab::ModelUse use = lab::ModelUse::compute) const;

 private:
  void take(const record::Field& field);
  [[nodiscard]] std::vector<std::string_view> order() const;
  std::map<std::string, std::string> texts_;  ///< by key
  std::map<std::string, std::string> helps_;  ///< by key; others are the table's
  std::map<std::string, bool> switched_;      ///< flags that were given
};

}  // namespace rooflm::cli
