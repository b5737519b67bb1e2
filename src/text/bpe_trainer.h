// Learning a byte-level BPE vocabulary from text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace rooflm::text {

struct BpeTrainOptions {
  std::uint32_t vocab_size = 4096;                       ///< all of it: 256 bytes, merges and special tokens
  std::uint64_t min_count = 2;                           ///< pairs rarer than this are not merged
  std::vector<std::string> special = {"<|endoftext|>"};  ///< get the last ids
};

/// Counts the words of texts (split by GPT-2's pattern), then merges the most frequent pair of neighbouring
/// tokens again and again (Sennrich et al. 2016). Deterministic: among equally frequent pairs the one with
/// the smaller ids wins; the order of the texts does not matter.
class BpeTrainer {
 public:
  /// Throws core::UsageError when vocab_size has no room for 256 bytes and the special tokens.
  explicit BpeTrainer(BpeTrainOptions options);
  BpeTrainer(const BpeTrainer&) = delete;
  BpeTrainer& operator=(const BpeTrainer&) = delete;
  ~BpeTrainer();

  /// Counts the words of one text. Invalid UTF-8 is kept as Tokenizer does.
  void add(std::string_view text);
  /// Learns the vocabulary from all that was added. It is smaller than options.vocab_size when the text has
  /// no more pairs that occur min_count times: ask the result for its vocab_size().
  [[nodiscard]] Tokenizer train() const;

 private:
  struct Words;
  BpeTrainOptions options_;
  std::unique_ptr<Words> words_;
};

}  // namespace rooflm::text
