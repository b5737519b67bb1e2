// The public face of tokenization.
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "text/bpe_encode.h"
#include "text/bpe_model.h"
#include "text/bpe_utf8.h"
#include "text/tokenizer_chunks.h"
#include "text/tokenizer_json.h"

namespace rooflm::text {
namespace {

constexpr std::size_t kStreamBytes = std::size_t{1} << 30U;  // as large a cache as there is
constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;   // what a thread takes at a time

/// Place and token of the first added token in `text` at or after `from`; the longest of those that begin
/// there.
struct Found {
  std::size_t at;
  const AddedToken* token;
};

Found find_added(const BpeModel& model, std::string_view text, bool special) {
  Found first{text.size(), nullptr};
  for (const auto& token : model.added) {
    if (!special && !token.always) continue;
    // Looking no further than the best so far keeps many tokens cheap.
    const std::size_t at =
        text.substr(0, std::min(text.size(), first.at + token.name.size())).find(token.name);
    if (at == std::string_view::npos) continue;
    const bool longer =
        first.token != nullptr && at == first.at && token.name.size() > first.token->name.size();
    if (first.token == nullptr || at < first.at || longer) first = {at, &token};
  }
  return first;
}

void encode_text(const BpeModel& model, WordEncoder& words, std::string_view text, SpecialTokens special,
                 std::vector<std::uint32_t>& ids, bool is_beginning = true) {
  while (!text.empty()) {
    const auto [at, token] = find_added(model, text, special == SpecialTokens::recognise);
    words.encode(text.substr(0, at), ids, is_beginning);
    is_beginning = false;
    text.remove_prefix(at);
    if (token == nullptr) continue;
    ids.push_back(token->id);
    text.remove_prefix(token->name.size());
  }
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) { return Tokenizer(read_tokenizer(path)); }

Tokenizer Tokenizer::from_merges(std::span<const std::pair<std::uint32_t, std::uint32_t>> merges,
                                 std::span<const std::string> special) {
  auto model = std::make_shared<BpeModel>();
  model->rules = SplitRules({std::string(kGpt2Pattern)}, "GPT-2's pattern");
  for (unsigned i = 0; i < model->byte_ids.size(); ++i) {
    model->tokens.emplace_back(1, static_cast<char>(byte_in_gpt2_order(i)));
  }
  for (const auto& [left, right] : merges) {
    if (left >= model->tokens.size() || right >= model->tokens.size()) {
      throw core::InputError(fmt::format("merge {}: ids {} and {} must be below {}", model->merges.size(),
                                         left, right, model->tokens.size()));
    }
    model->tokens.push_back(model->tokens[left] + model->tokens[right]);
    model->merges.emplace_back(left, right);
  }
  for (const auto& name : special) {
    model->added.push_back({name, static_cast<std::uint32_t>(model->tokens.size()), false});
    model->tokens.push_back(name);
  }
  model->index("merges");
  return Tokenizer(std::move(model));
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text, SpecialTokens special,
                                             bool is_beginning) const {
  std::vector<std::uint32_t> ids;
  WordEncoder words(*model_, text.size());
  encode_text(*model_, words, text, special, ids, is_beginning);
  return ids;
}

std::vector<std::uint32_t> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<std::uint32_t> ids = encode(text);
  if (bos()) ids.insert(ids.begin(), *bos());
  return ids;
}

std::vector<std::uint32_t> Tokenizer::encode_parallel(std::string_view text, int threads) const {
  ParallelEncoder encoder(*this, threads);
  std::vector<std::vector<std::uint32_t>> parts;
  encoder.encode(encoder.cut(text, kPieceBytes), parts);
  std::vector<std::uint32_t> ids;
  for (const auto& part : parts) ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

std::string_view Tokenizer::token_bytes(std::uint32_t id) const {
  if (id >= model_->tokens.size() || model_->tokens[id].empty()) {
    throw core::InputError(
        fmt::format("token id {} is not in the vocabulary of {} tokens", id, model_->tokens.size()));
  }
  return model_->tokens[id];
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids) const {
  std::string text;
  for (const auto id : ids) text += token_bytes(id);
  const bool strips_blank = model_->characters && model_->characters->strips_blank;
  return strips_blank && text.starts_with(' ') ? text.substr(1) : text;
}

std::uint32_t Tokenizer::vocab_size() const { return static_cast<std::uint32_t>(model_->tokens.size()); }

std::optional<std::uint32_t> Tokenizer::eot() const { return model_->eot; }
std::optional<std::uint32_t> Tokenizer::bos() const { return model_->bos; }

std::optional<std::uint32_t> Tokenizer::special_id(std::string_view name) const {
  for (const auto& token : model_->added) {
    if (token.name == name) return token.id;
  }
  return std::nullopt;
}

bool Tokenizer::encodes_as(const Tokenizer& other) const {
  const BpeModel& a = *model_;
  const BpeModel& b = *other.model_;
  return a.tokens == b.tokens && a.merges == b.merges && a.ignore_merges == b.ignore_merges &&
         a.wants_nfc == b.wants_nfc && a.characters.has_value() == b.characters.has_value() &&
         (!a.characters || a.characters->prefix == b.characters->prefix) &&
         a.rules.patterns() == b.rules.patterns();
}

void Tokenizer::save(const std::filesystem::path& path) const {
  core::write_file_atomically(path, tokenizer_json(*model_));
}

TokenStream::TokenStream(const Tokenizer& tokenizer)
    : model_(tokenizer.model_), words_(std::make_unique<WordEncoder>(*model_, kStreamBytes)) {}
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&&) noexcept = default;
TokenStream::~TokenStream() = default;

void TokenStream::encode(std::string_view text, std::vector<std::uint32_t>& ids, SpecialTokens special) {
  encode_text(*model_, *words_, text, special, ids);
}

}  // namespace rooflm::text
