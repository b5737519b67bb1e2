// Texts that the ranks of a job generate together.
#include "cli/rank_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "ranks/transport.h"

namespace rooflm::cli {
namespace {

using nlohmann::json;

json json_of(const CopyTexts& copy) {
  const train::Generation& made = copy.generation;
  json steps = json::array();
  for (const train::GenerationStep& step : made.steps)
    steps.push_back({step.is_prefill, step.texts, step.read, step.seconds, step.engine.step_s});
  return {{"texts", copy.texts},
          {"setup_s", made.setup_s},
          {"batch", made.size.batch},
          {"positions", made.size.positions},
          {"prefill_seq", made.prefill_seq},
          {"prompt_tokens", made.prompt_tokens},
          {"tokens", made.tokens},
          {"steps", std::move(steps)}};
}

CopyTexts copy_of(const json& sent) {
  CopyTexts copy{.texts = sent.at("texts"), .generation = {}};
  train::Generation& made = copy.generation;
  made.setup_s = sent.at("setup_s");
  made.size = {.batch = sent.at("batch"), .positions = sent.at("positions")};
  made.prefill_seq = sent.at("prefill_seq");
  made.prompt_tokens = sent.at("prompt_tokens").get<std::vector<std::int64_t>>();
  made.tokens = sent.at("tokens").get<std::vector<std::int64_t>>();
  for (const json& step : sent.at("steps")) {
    made.steps.push_back({.is_prefill = step.at(0),
                          .texts = step.at(1),
                          .read = step.at(2),
                          .seconds = step.at(3),
                          .engine = {.step_s = step.at(4)}});
  }
  return copy;
}

}  // namespace

Places own_places(std::size_t count, int copies, int copy) {
  const auto of = static_cast<std::size_t>(copies);
  const auto place = static_cast<std::size_t>(copy);
  const std::size_t extra = count % of;
  const std::size_t begin = count / of * place + std::min(place, extra);
  return {.begin = begin, .end = begin + count / of + (place < extra ? 1 : 0)};
}

std::vector<std::string> from_first(const lab::Ranks& ranks, const std::vector<std::string>& texts) {
  if (ranks == nullptr) return texts;
  const ranks::Patience patience(ranks.get());  // somebody may still be typing
  // JSON cannot hold bytes that are not UTF-8, so bytes are sent as numbers.
  json own = {{"texts", json::array()}};
  if (ranks->is_first()) {
    for (const std::string& text : texts)
      own["texts"].push_back(std::vector<unsigned char>(text.begin(), text.end()));
  }
  const json all = core::parse_json_object(ranks::share(*ranks, own.dump()).front(), "rank 0", "the prompts");
  std::vector<std::string> result;
  for (const json& text : all.at("texts")) {
    const auto bytes = text.get<std::vector<unsigned char>>();
    result.emplace_back(bytes.begin(), bytes.end());
  }
  return result;
}

std::vector<CopyTexts> gather_texts(const lab::Ranks& ranks, const compile::Sharding& sharding,
                                    const CopyTexts& own) {
  if (ranks == nullptr) return {own};
  const ranks::Patience patience(ranks.get());
  const bool has_texts = !own.texts.empty() && sharding.mesh().coordinates_of(ranks->rank()).tensor == 0;
  const std::vector<std::string> all =
      ranks::share(*ranks, (has_texts ? json_of(own) : json::object()).dump());
  std::vector<CopyTexts> copies;
  if (!ranks->is_first()) return copies;
  for (int rank = 0; rank < ranks->size(); ++rank) {  // copies count as ranks do
    const json sent =
        core::parse_json_object(all[static_cast<std::size_t>(rank)], ranks->name_of(rank), "its texts");
    if (sent.contains("texts")) copies.push_back(copy_of(sent));
  }
  return copies;
}

}  // namespace rooflm::cli
