// From words to token ids: merges within a word, and a cache of words seen before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_model.h"
#include "text/bpe_split.h"
#include "text/nfc_check.h"

namespace rooflm::text {

/// Appends the tokens of one word: the pair with the lowest rank merges first, the leftmost of equals.
/// Long words take O(n log n), with a heap.
void merge_word(const BpeModel& model, std::string_view word, std::vector<std::uint32_t>& ids);

/// `text`, not empty, with SentencePiece's marks for blanks, and one before it where the rules want that.
std::string with_marks(const CharacterRules& rules, std::string_view text, bool is_beginning);

/// Encodes texts on one thread. Remembers short words in a table of fixed size (a word displaces another
/// whose hash is the same), so a word that repeats costs one probe and no allocation.
class WordEncoder {
 public:
  /// `expected_bytes` of text sizes the cache.
  WordEncoder(const BpeModel& model, std::size_t expected_bytes);

  /// Appends the ids of `text`, any bytes, added tokens not recognised. `is_beginning`: nothing is before it.
  void encode(std::string_view text, std::vector<std::uint32_t>& ids, bool is_beginning = true);

 private:
  static constexpr std::size_t kKeyWords = 3;  ///< 23 bytes of a word, then its length
  static constexpr std::size_t kMostBytes = kKeyWords * 8 - 1;
  static constexpr std::size_t kMostIds = 9;
  using Key = std::array<std::uint64_t, kKeyWords>;
  /// One cache line.
  struct alignas(64) Entry {
    Key key;
    std::uint32_t count;
    std::array<std::uint32_t, kMostIds> ids;
  };
  static_assert(sizeof(Entry) == 64);

  void encode_normal(std::string_view text, std::vector<std::uint32_t>& ids);
  static Key key_of(std::string_view text, std::size_t first, std::size_t length);
  [[nodiscard]] Entry& entry_of(const Key& key) const;
  void encode_words(std::string_view text, std::span<const std::size_t> ends, std::size_t first,
                    std::vector<std::uint32_t>& ids);
  void encode_miss(const Key& key, std::string_view word, std::vector<std::uint32_t>& ids);

  struct FreeEntries {
    void operator()(Entry* entries) const;
  };
  const BpeModel* model_;
  std::string marked_;  ///< the text that is encoded, with marks for blanks
  WordSplitter splitter_;
  std::unique_ptr<NfcCheck> nfc_;  ///< if the tokenizer wants NFC
  std::unique_ptr<Entry[], FreeEntries> cache_;
  unsigned shift_ = 0;
};

}  // namespace rooflm::text
