// The tables of a byte-level BPE vocabulary, as encoding needs them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/bpe_split.h"

namespace rooflm::text {

inline constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
/// Of a byte that has no token.
inline constexpr std::uint32_t kNoToken = std::numeric_limits<std::uint32_t>::max();
/// Ids must be below this: a damaged file must not ask for gigabytes.
inline constexpr std::uint32_t kMaxVocab = 1U << 24U;

/// What a pair of neighbouring tokens merges to, and how early: lower ranks first. kNoRank: the pair stays.
struct Merge {
  std::uint32_t rank = kNoRank;
  std::uint32_t id = 0;
};

/// From pairs of ids to merges: open addressing, at most half full.
class MergeTable {
 public:
  MergeTable() : MergeTable(0) {}
  /// Room for `merges` merges.
  explicit MergeTable(std::size_t merges);
  /// Adds a merge; of a pair that is there already the first one stays.
  void add(std::uint32_t left, std::uint32_t right, Merge merge);
  [[nodiscard]] Merge find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return {};
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) {
    return (std::uint64_t{left} << 32U) | right;
  }
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15U) >> shift_) & mask_;
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  unsigned shift_ = 0;
};

/// A token that is found in text by its name. `always`: also when special tokens are not asked for.
struct AddedToken {
  std::string name;
  std::uint32_t id = 0;
  bool always = false;
};

/// SentencePiece's mark of a blank, "▁" (U+2581).
inline constexpr std::string_view kBlankMark = "\xE2\x96\x81";

/// BPE over characters, as SentencePiece learns it (Llama 2, Mistral, Gemma): blanks are written as
/// kBlankMark, words are not split before it, and a character that is no token is its bytes, "<0xE4>".
struct CharacterRules {
  /// Where a mark is set before a text: before each between two added tokens, only before what begins the
  /// whole, and whether one that is there is enough.
  enum class Prefix : std::uint8_t { none, each, each_without, first_without };
  Prefix prefix = Prefix::none;
  bool strips_blank = false;  ///< decoding leaves out the blank at the beginning
};

struct BpeModel {
  /// The bytes of every id; ids that do not exist are empty.
  std::vector<std::string> tokens;
  /// Of BPE over characters: how the file writes every id, and its rules.
  std::vector<std::string> spellings;
  std::optional<CharacterRules> characters;
  /// The merges in order of rank.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges;
  std::vector<AddedToken> added;
  SplitRules rules;
  /// The file asks for text in NFC (Unicode Standard Annex 15). Text is not changed here: what NFC may change
  /// is refused.
  bool wants_nfc = false;
  /// A word that is a token as a whole is that token, whatever the merges say (Llama 3).
  bool ignore_merges = false;
  /// The tokenizer.json this came from, if it did; written back as it is.
  std::string source_json;

  // Derived by index():
  MergeTable merge_table;
  std::array<std::uint32_t, 256> byte_ids{};  ///< kNoToken for some bytes that UTF-8 never has
  std::unordered_map<std::string_view, std::uint32_t> whole_words;    ///< only with ignore_merges
  std::unordered_map<std::string_view, std::uint32_t> character_ids;  ///< of BPE over characters
  std::optional<std::uint32_t> eot;
  /// What the file's post-processor sets before a text, if anything.
  std::optional<std::uint32_t> bos;

  /// Fills the derived tables. Throws core::InputError, beginning with `where`, when a byte has no token or
  /// the result of a merge is no token.
  void index(const std::string& where);
};

}  // namespace rooflm::text
