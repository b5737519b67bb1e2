// The options that make up a run's configuration: those of record::config_fields().
#include "cli/options/config_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "cli/output.h"
#include "cli/values.h"
#include "core/error.h"
#include "devices/device.h"
#include "lab/devices.h"
#include "model/config.h"
#include "ranks/place.h"

namespace rooflm::cli {
namespace {

using record::Config;
using record::Field;
using record::FieldType;

/// What changes slowest and fastest in a sweep; other fields in between, as the table has them.
constexpr std::array kSlowest = {"model", "arch",  "layers", "heads", "kv_heads", "d_model",   "head_dim",
                                 "d_ff",  "vocab", "batch",  "seq",   "device",   "recompute", "grad_accum"};
constexpr std::array kFastest = {"dtype", "engine", "attention"};

constexpr std::string_view kDevice = "device", kData = "dp", kLora = "lora";

/// Of records that do not name a device it is the processor; commands take the fastest that is here. The
/// copies follow from the number of ranks.
std::string initial_of(const Field& field) {
  return field.key == kDevice || field.key == kData ? std::string() : std::string(field.initial);
}

/// What the other degrees leave of the job's ranks.
void set_copies(Config& config) {
  if (config.find(kData) != nullptr) return;
  const std::int64_t ranks = ranks::find_place().size;
  if (ranks == 1) return;
  const auto degree = [&](const char* key) {
    return std::max<std::int64_t>(1, config.integer(key).value_or(1));
  };
  const std::int64_t part = degree("cp") * degree("tp") * degree("pp");
  if (ranks % part != 0) {
    throw core::UsageError(fmt::format("--cp {} x --tp {} x --pp {} does not divide the {} ranks of this job",
                                       degree("cp"), degree("tp"), degree("pp"), ranks));
  }
  config.set(kData, ranks / part);
}

/// "cuda" is the rank's own GPU.
std::string own_device(const std::string& name) {
  const ranks::Place place = ranks::find_place();
  if (place.size == 1 || name.find(':') != std::string::npos) return name;
  std::string first = lab::parse_device(name);
  const std::string prefix = first.substr(0, first.find(':') + 1);
  // Where a starter shows each rank one GPU, that is the first.
  const int here = backends::provider_of(first).count();
  if (prefix.empty() || here == 1) return first;
  return fmt::format("{}{}", prefix,
                     place.shares_gpus && here > 0 ? place.local_rank % here : place.local_rank);
}

/// The values of a list, typed as the field says.
std::vector<Config::Value> values_of(const Field& field, const std::string& text) {
  std::vector<Config::Value> values;
  if (field.type == FieldType::integer) {
    // lab::point_of knows the least of each.
    constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::min();
    for (const std::int64_t value : parse_integers(field.option, text, kAny)) values.emplace_back(value);
    return values;
  }
  if (field.key == kLora) return {text};  // its commas are its own
  for (const std::string& name : parse_names(field.option, text)) {
    if (field.type == FieldType::number) {
      values.emplace_back(parse_number(field.option, name));
    } else if (field.type == FieldType::flag) {
      values.emplace_back(name == "yes");
    } else {
      values.emplace_back(name);
    }
  }
  return values;
}

template <class Keys>
bool is_among(const Keys& keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

}  // namespace

std::string dtype_names(const CommandLine& line) {
  return fmt::format("{}", fmt::join(lab::offered_dtypes(line.offer() == Offer::anywhere), "|"));
}

std::string operand_dtype_names(const CommandLine& line) {
  std::vector<std::string> names = lab::offered_dtypes(line.offer() == Offer::anywhere);
  std::erase(names, core::name_of(core::DType::f8));
  return fmt::format("{}", fmt::join(names, "|"));
}

std::string dtype_names_of_gpus() {
  return fmt::format("{}", fmt::join(devices::device_of_kind(devices::Kind::gpu).dtypes, "|"));
}

std::string device_or_default(const std::string& typed) {
  if (!typed.empty()) return own_device(typed);
  const backends::DefaultDevice chosen = lab::default_device(ranks::find_place().local_rank);
  note("device: {} ({})", chosen.name, chosen.why);
  return own_device(chosen.name.substr(0, chosen.name.find(':')));
}

ConfigOptions::ConfigOptions(std::initializer_list<std::string_view> keys) {
  for (const Field& field : record::config_fields()) {
    if (keys.size() == 0 || is_among(keys, field.key)) take(field);
  }
}

ConfigOptions::ConfigOptions(const std::vector<std::string_view>& keys,
                             std::initializer_list<std::string_view> more) {
  for (const Field& field : record::config_fields()) {
    if (is_among(keys, field.key) || is_among(more, field.key)) take(field);
  }
}

void ConfigOptions::take(const Field& field) {
  if (!field.option.empty()) texts_[std::string(field.key)] = initial_of(field);
}

void ConfigOptions::add_to(CommandLine& line) { add_to(line, dtype_names(line)); }

void ConfigOptions::add_to(CommandLine& line, const std::string& dtypes) {
  for (const Field& field : record::config_fields()) {
    const std::string key(field.key);
    if (!texts_.contains(key)) continue;
    const std::string option(field.option);
    const auto other = helps_.find(key);
    const std::string help = other == helps_.end() ? std::string(field.help) : other->second;
    if (field.type == FieldType::flag) {
      line.add_flag(option, switched_[key], help).group(std::string(field.group));
      continue;
    }
    Option added = line.add_option(option, texts_[key], help);
    const std::string values = field.key == "dtype"   ? dtypes
                               : field.values.empty() ? lab::accepted_names(key)
                                                      : std::string(field.values);
    added.type_name(values).group(std::string(field.group));
    if (!texts_[key].empty()) added.show_default();
    if (key == "model") line.offer_words(option, model::preset_names);
  }
}

void ConfigOptions::clear() {
  for (auto& [key, text] : texts_) text.clear();
}

void ConfigOptions::fill() {
  for (auto& [key, text] : texts_) {
    if (text.empty()) text = initial_of(*record::find_field(key));
  }
}

std::vector<std::string_view> ConfigOptions::order() const {
  std::vector<std::string_view> keys(kSlowest.begin(), kSlowest.end());
  for (const Field& field : record::config_fields()) {
    if (!is_among(kSlowest, field.key) && !is_among(kFastest, field.key)) keys.push_back(field.key);
  }
  keys.insert(keys.end(), kFastest.begin(), kFastest.end());
  std::erase_if(keys, [this](std::string_view key) { return !has(key); });
  return keys;
}

std::vector<Config> ConfigOptions::combinations(std::span<const std::string_view> keys) const {
  std::vector<Config> configs(1);
  for (const std::string_view key : keys) {
    const Field& field = *record::find_field(key);
    std::string value = key == kDevice ? device_or_default(text(key)) : text(key);
    if (value.empty() && key == kData) continue;
    if (value.empty() && !field.initial.empty()) {
      throw core::UsageError(fmt::format("{} needs a value", field.option));
    }
    // A flag turns its field to the other value: --nondeterministic is deterministic=no.
    const auto flag = switched_.find(std::string(key));
    if (flag != switched_.end() && flag->second) value = field.initial == "yes" ? "no" : "yes";
    multiply(configs, values_of(field, value),
             [&](Config& config, const Config::Value& one) { config.set(key, one); });
  }
  return configs;
}

std::vector<lab::Point> ConfigOptions::sweep(lab::ModelUse use) const {
  std::vector<Config> configs = combinations(order());
  if (has(kData)) std::ranges::for_each(configs, set_copies);
  return lab::make_points(configs, use);
}

lab::Point ConfigOptions::single(lab::ModelUse use) const {
  auto points = sweep(use);
  if (points.size() != 1) {
    throw core::UsageError(fmt::format("takes a single configuration, the options name {}", points.size()));
  }
  return std::move(points.front());
}

}  // namespace rooflm::cli
