// Tokenizing with several threads: texts cut where words are sure to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace rooflm::text {

/// The number of threads that `threads` asks for: itself, or the machine's cores for 0. Throws
/// core::UsageError when it is negative.
int thread_count(int threads);

/// Encodes pieces of text on several threads; keeps their caches of words between calls. Used by one thread.
class ParallelEncoder {
 public:
  ParallelEncoder(const Tokenizer& tokenizer, int threads);

  /// Cuts `text` into pieces of at most about `bytes`, or leaves it whole, such that their ids, one after the
  /// other, are those of the text: between an ASCII letter or digit and a blank or line feed, if the pattern
  /// allows it.
  [[nodiscard]] std::vector<std::string_view> cut(std::string_view text, std::size_t bytes) const;

  /// ids[i] becomes the ids of pieces[i], special tokens as text.
  void encode(std::span<const std::string_view> pieces, std::vector<std::vector<std::uint32_t>>& ids);

 private:
  std::vector<TokenStream> streams_;  ///< one per thread
  bool may_cut_ = false;
};

}  // namespace rooflm::text
