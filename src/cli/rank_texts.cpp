// Texts that the ranks of a job generate together.
#include "cli/rank_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "ranks/transport.h"

namespace rooflm::cli {
namespace {

template <class T>
void add_values(std::vector<T>& all, const nlohmann::json& more) {
  const auto values = more.get<std::vector<T>>();
  all.insert(all.end(), values.begin(), values.end());
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
  // Bytes that are no UTF-8 are no JSON: numbers are.
  nlohmann::json own = {{"texts", nlohmann::json::array()}};
  if (ranks->is_first()) {
    for (const std::string& text : texts)
      own["texts"].push_back(std::vector<unsigned char>(text.begin(), text.end()));
  }
  const nlohmann::json all =
      core::parse_json_object(ranks::share(*ranks, own.dump()).front(), "rank 0", "the prompts");
  std::vector<std::string> result;
  for (const nlohmann::json& text : all.at("texts")) {
    const auto bytes = text.get<std::vector<unsigned char>>();
    result.emplace_back(bytes.begin(), bytes.end());
  }
  return result;
}

CopyTexts gather_texts(const lab::Ranks& ranks, const compile::Sharding& sharding, const CopyTexts& own) {
  if (ranks == nullptr) return own;
  const ranks::Patience patience(ranks.get());
  const program::Mesh mesh = sharding.mesh();
  nlohmann::json sent = nlohmann::json::object();
  if (mesh.coordinates_of(ranks->rank()).tensor == 0) {
    sent = {{"texts", own.texts},
            {"prompt_tokens", own.prompt_tokens},
            {"tokens", own.tokens},
            {"first_s", own.first_s},
            {"later_s", own.later_s}};
  }
  const std::vector<std::string> all = ranks::share(*ranks, sent.dump());
  CopyTexts joined;
  if (!ranks->is_first()) return joined;
  for (int rank = 0; rank < ranks->size(); ++rank) {  // copies count as ranks do
    const nlohmann::json copy =
        core::parse_json_object(all[static_cast<std::size_t>(rank)], ranks->name_of(rank), "its texts");
    if (!copy.contains("texts")) continue;
    add_values(joined.texts, copy.at("texts"));
    add_values(joined.prompt_tokens, copy.at("prompt_tokens"));
    add_values(joined.tokens, copy.at("tokens"));
    joined.first_s = std::max(joined.first_s, copy.at("first_s").get<double>());
    joined.later_s = std::max(joined.later_s, copy.at("later_s").get<double>());
  }
  return joined;
}

}  // namespace rooflm::cli
