// generate --logprobs: tokens as rows, with those that were likely, too.
#include "cli/token_rows.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "report/tables/typed_columns.h"

namespace rooflm::cli {
namespace {

/// A token that was chosen, or was among the most likely ones where another was.
struct TokenRow {
  std::int64_t text = 0, place = 0;
  std::optional<std::int64_t> rank{};  ///< 1: the most likely one
  std::int64_t id = 0;
  std::string token{};
  double logprob = 0;
  bool is_chosen = false;
};

const report::TypedColumns<TokenRow>& row_columns() {
  static const report::TypedColumns<TokenRow> columns = {
      {"text", "text", &TokenRow::text},         {"place", "place", &TokenRow::place},
      {"rank", "rank", &TokenRow::rank},         {"id", "id", &TokenRow::id},
      {"token", "token", &TokenRow::token},      {"logprob", "logprob", &TokenRow::logprob},
      {"chosen", "chosen", &TokenRow::is_chosen}};
  return columns;
}

}  // namespace

std::vector<report::Column> token_columns() { return report::columns_of(row_columns()); }

Table tokens_table(const train::Generation& generation, const text::Tokenizer& tokenizer) {
  std::vector<TokenRow> rows;
  for (std::size_t text = 0; text < generation.made.size(); ++text) {
    for (std::size_t place = 0; place < generation.made[text].size(); ++place) {
      const train::MadeToken& made = generation.made[text][place];
      const auto add = [&](std::int32_t id, double logprob, std::optional<std::int64_t> rank) {
        train::Utf8Stream stream;
        std::string token = stream.append(tokenizer.token_bytes(static_cast<std::uint32_t>(id)));
        token += stream.finish();
        rows.push_back({.text = static_cast<std::int64_t>(text),
                        .place = static_cast<std::int64_t>(place),
                        .rank = rank,
                        .id = id,
                        .token = std::move(token),
                        .logprob = logprob,
                        .is_chosen = id == made.id});
      };
      bool is_among = false;
      for (std::size_t i = 0; i < made.top.size(); ++i) {
        const auto& [id, logprob] = made.top[i];
        add(id, logprob, static_cast<std::int64_t>(i) + 1);
        is_among = is_among || id == made.id;
      }
      if (!is_among) add(made.id, made.logprob, std::nullopt);
    }
  }
  return row_columns().table(rows);
}

}  // namespace rooflm::cli
