// What a program that generates text costs besides kernels.
#include "perfmodel/inference_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/names.h"
#include "core/printable.h"
#include "perfmodel/planning_text.h"

namespace rooflm::perfmodel {

using core::WeightFormat;

StoredWeights parse_stored_weights(std::string_view name) {
  const std::size_t colon = name.find(':');
  constexpr double kByte = 8, kHalf = 16, kGroup = 64;
  const std::string_view kind = name.substr(0, colon);
  constexpr WeightFormat kPlanned[] = {WeightFormat::bf16, WeightFormat::fp8, WeightFormat::int4,
                                       WeightFormat::int8, WeightFormat::nf4};
  const auto* const found = std::ranges::find(kPlanned, kind, core::name_of<WeightFormat>);
  if (found == std::end(kPlanned)) {
    std::vector<std::string> known;
    for (const WeightFormat format : kPlanned) known.emplace_back(name_of(format));
    throw core::UsageError(core::unknown_name("format of weights", kind, known));
  }
  const bool has_groups = *found == WeightFormat::int4 || *found == WeightFormat::nf4;
  double group = kGroup;
  if (colon != std::string_view::npos) {
    const std::string_view size = name.substr(colon + 1);
    std::int64_t typed = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), typed);
    if (!has_groups || error != std::errc() || end != size.data() + size.size() || typed < 1) {
      throw core::UsageError(fmt::format(
          "--weights {}: a group of at least one weight is expected, for int4 or nf4, such as int4:32",
          core::printable(std::string(name))));
    }
    group = static_cast<double>(typed);
  }
  double bits = 4 + 2 * kHalf / group;
  if (!has_groups) bits = *found == WeightFormat::bf16 ? kHalf : kByte;
  return {.name = std::string(name), .format = *found, .bits = bits};
}

namespace {

std::map<WeightFormat, double> byte_shares(const nlohmann::json& json) {
  std::map<WeightFormat, double> shares;
  for (const auto& [name, share] : json.items())
    shares[core::parse<WeightFormat>(name)] = share.get<double>();
  return shares;
}

}  // namespace

const std::vector<InferenceEngine>& inference_engines() {
  static const std::vector<InferenceEngine> kAll = [] {
    std::vector<InferenceEngine> all;
    const auto data = nlohmann::json::parse(engines_text());
    for (const auto& json : data.at("engines")) {
      all.push_back({.name = json.at("name"),
                     .framework = json.at("framework"),
                     .source = json.at("source"),
                     .byte_share = byte_shares(json.at("byte_share")),
                     .launches_per_layer = json.value("launches_per_layer", 0.0),
                     .launches_beside = json.value("launches_beside", 0.0),
                     .launch_host_s = json.value("launch_host_s", 0.0),
                     .most_texts = json.at("most_texts"),
                     .most_tokens = json.at("most_tokens"),
                     .free_share = json.at("free_share"),
                     .reserves_output = json.at("reserves_output"),
                     .has_quantised_head = json.at("quantised_head"),
                     .spread = json.at("spread")});
    }
    return all;
  }();
  return kAll;
}

const InferenceEngine& find_inference_engine(std::string_view name) {
  std::vector<std::string> names;
  for (const InferenceEngine& engine : inference_engines()) {
    if (engine.name == name) return engine;
    names.push_back(engine.name);
  }
  throw core::UsageError(core::unknown_name("engine of inference", name, names));
}

}  // namespace rooflm::perfmodel
