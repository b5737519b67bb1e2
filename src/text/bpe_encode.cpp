// The inner loop of tokenization.
#include "text/bpe_encode.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <queue>

#include "core/error.h"
#include "text/bpe_utf8.h"

namespace rooflm::text {
namespace {

constexpr std::size_t kShortWord = 64;
constexpr std::size_t kMostEntries = 1U << 16U;
constexpr std::size_t kFewestEntries = 64;
constexpr std::size_t kWordsAtOnce = 1024;

/// The token of one byte. Throws core::InputError if the vocabulary has none.
std::uint32_t token_of(const BpeModel& model, char c) {
  const auto byte = static_cast<unsigned char>(c);
  const std::uint32_t id = model.byte_ids[byte];
  if (id != kNoToken) return id;
  throw core::InputError(fmt::format(
      "the text has the byte 0x{:02x}, which never occurs in UTF-8, and the tokenizer has no token for it",
      byte));
}

/// What the word is before its first merge: as many tokens as bytes, or of BPE over characters as many as
/// characters that are tokens, and bytes of the others. Returns how many; `tokens` has room for one a byte.
std::size_t first_tokens(const BpeModel& model, std::string_view word, std::span<std::uint32_t> tokens) {
  std::size_t n = 0;
  if (!model.characters) {
    for (const char c : word) tokens[n++] = token_of(model, c);
    return n;
  }
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t most = std::min(utf8_length(static_cast<unsigned char>(word[at])), word.size() - at);
    std::size_t length = 1;  // no further than what may follow: the text may be no UTF-8
    while (length < most && (static_cast<unsigned char>(word[at + length]) & 0xC0U) == 0x80U) ++length;
    const auto found = model.character_ids.find(word.substr(at, length));
    if (found != model.character_ids.end()) {
      tokens[n++] = found->second;
      at += length;
      continue;
    }
    for (std::size_t i = 0; i < length; ++i) tokens[n++] = token_of(model, word[at + i]);
    at += length;
  }
  return n;
}

/// Words of at most kShortWord bytes: the lowest rank is looked for again after every merge.
void merge_short_word(const BpeModel& model, std::string_view word, std::vector<std::uint32_t>& ids) {
  std::array<std::uint32_t, kShortWord> tokens;
  std::array<Merge, kShortWord> merges;  // merges[i] is that of tokens i and i + 1
  std::size_t n = first_tokens(model, word, tokens);
  const auto& table = model.merge_table;
  for (std::size_t i = 0; i + 1 < n; ++i) merges[i] = table.find(tokens[i], tokens[i + 1]);
  while (n > 1) {
    const auto end = merges.begin() + static_cast<std::ptrdiff_t>(n - 1);
    const auto best = std::min_element(merges.begin(), end, [](auto& a, auto& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) break;
    const auto at = static_cast<std::size_t>(best - merges.begin());
    tokens[at] = best->id;
    std::copy(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 2,
              tokens.begin() + static_cast<std::ptrdiff_t>(n),
              tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    if (at + 2 < n) std::copy(best + 1, end, best);
    --n;
    if (at > 0) merges[at - 1] = table.find(tokens[at - 1], tokens[at]);
    if (at + 1 < n) merges[at] = table.find(tokens[at], tokens[at + 1]);
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n));
}

/// Any length: the tokens are a linked list, the candidates a heap; a candidate is stale when its left token
/// was merged away or its merge is another one now.
void merge_long_word(const BpeModel& model, std::string_view word, std::vector<std::uint32_t>& ids) {
  constexpr auto kNone = static_cast<std::size_t>(-1);
  struct Token {
    std::uint32_t id;
    bool alive;
    std::size_t before, after;
  };
  struct Candidate {
    Merge merge;
    std::size_t left;
    bool operator<(const Candidate& o) const {  // std::priority_queue has the largest on top
      return merge.rank != o.merge.rank ? merge.rank > o.merge.rank : left > o.left;
    }
  };
  std::vector<std::uint32_t> first(word.size());
  first.resize(first_tokens(model, word, first));
  std::vector<Token> tokens(first.size());
  for (std::size_t i = 0; i < first.size(); ++i)
    tokens[i] = {first[i], true, i > 0 ? i - 1 : kNone, i + 1 < first.size() ? i + 1 : kNone};
  std::priority_queue<Candidate> candidates;
  const auto merge_at = [&](std::size_t left) {
    return tokens[left].after == kNone
               ? Merge{}
               : model.merge_table.find(tokens[left].id, tokens[tokens[left].after].id);
  };
  const auto propose = [&](std::size_t left) {
    const Merge merge = merge_at(left);
    if (merge.rank != kNoRank) candidates.push({merge, left});
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) propose(i);
  while (!candidates.empty()) {
    const auto [merge, left] = candidates.top();
    candidates.pop();
    if (!tokens[left].alive || merge_at(left).rank != merge.rank) continue;
    const std::size_t right = tokens[left].after;
    tokens[right].alive = false;
    tokens[left].id = merge.id;
    tokens[left].after = tokens[right].after;
    if (tokens[left].after != kNone) tokens[tokens[left].after].before = left;
    propose(left);
    if (tokens[left].before != kNone) propose(tokens[left].before);
  }
  for (const auto& token : tokens) {
    if (token.alive) ids.push_back(token.id);
  }
}

}  // namespace

void merge_word(const BpeModel& model, std::string_view word, std::vector<std::uint32_t>& ids) {
  if (model.ignore_merges) {
    const auto whole = model.whole_words.find(word);
    if (whole != model.whole_words.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  if (word.size() <= kShortWord) {
    merge_short_word(model, word, ids);
  } else {
    merge_long_word(model, word, ids);
  }
}

std::string with_marks(const CharacterRules& rules, std::string_view text, bool is_beginning) {
  using Prefix = CharacterRules::Prefix;
  std::string marked;
  marked.reserve(text.size() + text.size() / 2);
  const bool is_marked = text.starts_with(' ') || text.starts_with(kBlankMark);
  const bool is_wanted = rules.prefix == Prefix::each ||
                         (rules.prefix == Prefix::each_without && !is_marked) ||
                         (rules.prefix == Prefix::first_without && is_beginning && !is_marked);
  if (is_wanted) marked += kBlankMark;
  for (const char c : text) {
    if (c == ' ') {
      marked += kBlankMark;
    } else {
      marked += c;
    }
  }
  return marked;
}

void WordEncoder::FreeEntries::operator()(Entry* entries) const { std::free(entries); }

WordEncoder::WordEncoder(const BpeModel& model, std::size_t expected_bytes)
    : model_(&model), splitter_(model.rules) {
  if (model.wants_nfc) nfc_ = std::make_unique<NfcCheck>();
  const std::size_t entries = std::bit_ceil(std::clamp(expected_bytes / 4, kFewestEntries, kMostEntries));
  auto* memory = static_cast<Entry*>(std::aligned_alloc(alignof(Entry), entries * sizeof(Entry)));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(static_cast<void*>(memory), 0, entries * sizeof(Entry));  // no word has length 0
  cache_.reset(memory);
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(entries));
}

WordEncoder::Key WordEncoder::key_of(std::string_view text, std::size_t first, std::size_t length) {
  Key key{};
  if (first + sizeof key <= text.size()) {  // three loads and masks instead of a copy of unknown length
    std::memcpy(key.data(), text.data() + first, sizeof key);
    for (std::size_t i = 0; i < kKeyWords; ++i) {
      const std::size_t kept = std::clamp<std::size_t>(length, 8 * i, 8 * i + 8) - 8 * i;
      key[i] &= kept == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * kept)) - 1;
    }
  } else {
    std::memcpy(key.data(), text.data() + first, length);
  }
  key.back() |= std::uint64_t{length} << 56U;
  return key;
}

WordEncoder::Entry& WordEncoder::entry_of(const Key& key) const {
  std::uint64_t hash = key[0] * 0x9E3779B97F4A7C15U;
  hash = (hash ^ (hash >> 29U) ^ key[1]) * 0xBF58476D1CE4E5B9U;
  hash = (hash ^ (hash >> 32U) ^ key[2]) * 0x94D049BB133111EBU;
  return cache_[static_cast<std::size_t>(hash >> shift_)];
}

void WordEncoder::encode(std::string_view text, std::vector<std::uint32_t>& ids, bool is_beginning) {
  if (text.empty()) return;
  if (!model_->characters) return encode_normal(text, ids);
  marked_ = with_marks(*model_->characters, text, is_beginning);
  encode_normal(marked_, ids);
}

void WordEncoder::encode_normal(std::string_view text, std::vector<std::uint32_t>& ids) {
  const auto replaced = replace_invalid_utf8(text);
  if (nfc_) nfc_->require(replaced ? std::string_view(*replaced) : text);
  splitter_.begin(replaced ? std::string_view(*replaced) : text);
  std::array<std::size_t, kWordsAtOnce> ends;
  std::size_t first = 0;
  for (std::size_t n = splitter_.next(ends); n > 0; n = splitter_.next(ends)) {
    encode_words(text, {ends.data(), n}, first, ids);
    first = ends[n - 1];
  }
}

void WordEncoder::encode_words(std::string_view text, std::span<const std::size_t> ends, std::size_t first,
                               std::vector<std::uint32_t>& ids) {
  std::array<std::uint32_t, kWordsAtOnce * 2 + kMostIds> found;
  std::size_t n = 0;
  const auto flush = [&] {
    ids.insert(ids.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(n));
    n = 0;
  };
  for (const std::size_t end : ends) {
    const std::size_t length = end - first;
    if (length > kMostBytes) {
      flush();
      merge_word(*model_, text.substr(first, length), ids);
    } else {
      const Key key = key_of(text, first, length);
      const Entry& entry = entry_of(key);
      if (entry.key == key) {
        std::memcpy(found.data() + n, entry.ids.data(), sizeof entry.ids);
        n += entry.count;
        if (n + kMostIds > found.size()) flush();
      } else {
        flush();
        encode_miss(key, text.substr(first, length), ids);
      }
    }
    first = end;
  }
  flush();
}

void WordEncoder::encode_miss(const Key& key, std::string_view word, std::vector<std::uint32_t>& ids) {
  const std::size_t before = ids.size();
  merge_word(*model_, word, ids);
  const std::size_t count = ids.size() - before;
  if (count > kMostIds) return;
  Entry& entry = entry_of(key);
  entry.key = key;
  entry.count = static_cast<std::uint32_t>(count);
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), entry.ids.begin());
}

}  // namespace rooflm::text
