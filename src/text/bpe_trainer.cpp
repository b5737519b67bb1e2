// BPE training with incremental counts: a merge touches only the words that hold its pair.
#include "text/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "core/error.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "text/bpe_split.h"
#include "text/bpe_utf8.h"

namespace rooflm::text {
namespace {

constexpr std::uint32_t kBytes = 256;
/// Bytes. Text without blanks (base64, Chinese) is one word for the pattern, and each merge writes the whole
/// word again: learning takes such words in parts. Tokenizing does not.
constexpr std::size_t kLongestWord = 1024;

struct HashText {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) {
  return (std::uint64_t{left} << 32U) | right;
}

struct HashPair {
  std::size_t operator()(std::uint64_t key) const {
    return static_cast<std::size_t>((key ^ (key >> 29U)) * 0x9E3779B97F4A7C15U);
  }
};

/// A word as the tokens it consists of so far, and how often it occurs.
struct Word {
  std::vector<std::uint32_t> tokens;
  std::uint64_t count = 0;
};

/// Where a pair occurs. `words` may name words that hold it no more.
struct PairUse {
  std::uint64_t count = 0;
  std::vector<std::uint32_t> words;
};

struct Candidate {
  std::uint64_t count;
  std::uint64_t pair;
  bool operator<(const Candidate& o) const {  // std::priority_queue has the largest on top
    return count != o.count ? count < o.count : pair > o.pair;
  }
};

/// The state of learning merges.
class Merger {
 public:
  explicit Merger(std::vector<Word> words) : words_(std::move(words)) {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const auto& tokens = words_[w].tokens;
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) count(tokens[i], tokens[i + 1], w);
    }
    propose_touched();
  }

  /// Merges the most frequent pair into `id`, or returns false when none occurs `min_count` times.
  bool merge_best(std::uint64_t min_count, std::uint32_t id,
                  std::pair<std::uint32_t, std::uint32_t>& merged) {
    while (!candidates_.empty()) {
      const auto [count, pair] = candidates_.top();
      if (count < std::max<std::uint64_t>(1, min_count)) return false;
      candidates_.pop();
      const auto found = uses_.find(pair);
      if (found == uses_.end() || found->second.count != count)
        continue;  // stale: proposed again when it changed
      merged = {static_cast<std::uint32_t>(pair >> 32U), static_cast<std::uint32_t>(pair)};
      const std::vector<std::uint32_t> where = std::move(found->second.words);
      for (const auto word : where) merge_in_word(word, merged.first, merged.second, id);
      uses_.erase(pair);
      propose_touched();
      return true;
    }
    return false;
  }

 private:
  void count(std::uint32_t left, std::uint32_t right, std::uint32_t word) {
    const std::uint64_t key = pair_key(left, right);
    auto& use = uses_[key];
    use.count += words_[word].count;
    if (use.words.empty() || use.words.back() != word) use.words.push_back(word);
    touched_.push_back(key);
  }

  void discount(std::uint32_t left, std::uint32_t right, std::uint32_t word) {
    const std::uint64_t key = pair_key(left, right);
    uses_.find(key)->second.count -= words_[word].count;
    touched_.push_back(key);
  }

  void merge_in_word(std::uint32_t word, std::uint32_t left, std::uint32_t right, std::uint32_t id) {
    auto& tokens = words_[word].tokens;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++kept) {
      if (i + 1 == tokens.size() || tokens[i] != left || tokens[i + 1] != right) {
        tokens[kept] = tokens[i++];
        continue;
      }
      if (kept > 0) {
        discount(tokens[kept - 1], left, word);
        count(tokens[kept - 1], id, word);
      }
      if (i + 2 < tokens.size()) {
        discount(right, tokens[i + 2], word);
        count(id, tokens[i + 2], word);
      }
      tokens[kept] = id;
      i += 2;
    }
    tokens.resize(kept);
  }

  void propose_touched() {
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const auto key : touched_) {
      const auto found = uses_.find(key);
      if (found == uses_.end()) continue;
      if (found->second.count == 0) {
        uses_.erase(found);
      } else {
        candidates_.push({found->second.count, key});
      }
    }
    touched_.clear();
  }

  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, PairUse, HashPair> uses_;
  std::priority_queue<Candidate> candidates_;
  std::vector<std::uint64_t> touched_;
};

}  // namespace

struct BpeTrainer::Words {
  SplitRules rules{{std::string(kGpt2Pattern)}, "GPT-2's pattern"};
  WordSplitter splitter{rules};
  std::unordered_map<std::string, std::uint64_t, HashText, std::equal_to<>> counts;
};

BpeTrainer::BpeTrainer(BpeTrainOptions options)
    : options_(std::move(options)), words_(std::make_unique<Words>()) {
  const std::size_t least = kBytes + options_.special.size();
  if (options_.vocab_size < least) {
    throw core::UsageError(fmt::format("vocabulary size {}: expected at least {}, for 256 bytes and {}",
                                       options_.vocab_size, least,
                                       core::format_count(options_.special.size(), "special token")));
  }
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::string_view text) {
  const auto replaced = replace_invalid_utf8(text);
  words_->splitter.begin(replaced ? std::string_view(*replaced) : text);
  std::array<std::size_t, 1024> ends;
  std::size_t first = 0;
  for (std::size_t n = words_->splitter.next(ends); n > 0; n = words_->splitter.next(ends)) {
    core::StopSignals::check();
    for (std::size_t i = 0; i < n; first = ends[i++]) {
      for (auto word = text.substr(first, ends[i] - first); !word.empty();) {
        const auto part = word.substr(0, kLongestWord);
        word.remove_prefix(part.size());
        const auto found = words_->counts.find(part);
        if (found != words_->counts.end()) {
          ++found->second;
        } else {
          words_->counts.emplace(part, 1);
        }
      }
    }
  }
}

Tokenizer BpeTrainer::train() const {
  std::array<std::uint32_t, kBytes> id_of_byte{};
  for (std::uint32_t id = 0; id < kBytes; ++id) id_of_byte[byte_in_gpt2_order(id)] = id;
  std::vector<Word> words;
  words.reserve(words_->counts.size());
  for (const auto& [text, count] : words_->counts) {
    Word word{{}, count};
    for (const char c : text) word.tokens.push_back(id_of_byte[static_cast<unsigned char>(c)]);
    words.push_back(std::move(word));
  }
  Merger merger(std::move(words));
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges;
  const std::size_t wanted = options_.vocab_size - kBytes - options_.special.size();
  std::pair<std::uint32_t, std::uint32_t> merged;
  while (merges.size() < wanted &&
         merger.merge_best(options_.min_count, kBytes + static_cast<std::uint32_t>(merges.size()), merged)) {
    core::StopSignals::check();
    merges.push_back(merged);
  }
  return Tokenizer::from_merges(merges, options_.special);
}

}  // namespace rooflm::text
