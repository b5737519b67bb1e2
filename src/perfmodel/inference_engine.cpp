// What a program that generates text costs besides kernels.
#include "perfmodel/inference_engine.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/names.h"
#include "core/printable.h"
#include "perfmodel/planning_text.h"

namespace rooflm::perfmodel {

WeightFormat parse_weight_format(std::string_view name) {
  const std::size_t colon = name.find(':');
  WeightFormat format{.name = std::string(name), .kind = std::string(name.substr(0, colon))};
  constexpr double kByte = 8, kHalf = 16, kGroup = 64;
  double group = kGroup;
  const bool has_groups = format.kind == "int4" || format.kind == "nf4";
  if (colon != std::string_view::npos) {
    const std::string_view size = name.substr(colon + 1);
    std::int64_t typed = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), typed);
    if (!has_groups || error != std::errc() || end != size.data() + size.size() || typed < 1) {
      throw core::UsageError(fmt::format(
          "--weights {}: a group of at least one weight is expected, of int4 or nf4, such as int4:32",
          core::printable(std::string(name))));
    }
    group = static_cast<double>(typed);
  }
  const std::map<std::string, double> bits = {{"bf16", kHalf},
                                              {"fp8", kByte},
                                              {"int8", kByte},
                                              {"int4", 4 + 2 * kHalf / group},
                                              {"nf4", 4 + 2 * kHalf / group}};
  const auto found = bits.find(format.kind);
  if (found == bits.end()) {
    std::vector<std::string> known;
    for (const auto& [kind, of] : bits) known.push_back(kind);
    throw core::UsageError(core::unknown_name("format of weights", format.kind, known));
  }
  format.bits = found->second;
  return format;
}

const std::vector<InferenceEngine>& inference_engines() {
  static const std::vector<InferenceEngine> kAll = [] {
    std::vector<InferenceEngine> all;
    const auto data = nlohmann::json::parse(engines_text());
    for (const auto& json : data.at("engines")) {
      all.push_back({.name = json.at("name"),
                     .framework = json.at("framework"),
                     .source = json.at("source"),
                     .byte_share = json.at("byte_share"),
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
