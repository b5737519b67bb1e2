// Stop words in a text that comes in pieces.
#include "train/stop_filter.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace rooflm::train {

std::string StopFilter::append(std::string_view text) {
  if (has_stopped_) return "";
  held_ += text;
  std::size_t first = std::string::npos;
  std::size_t begun = held_.size();  // where the first word begins that the end of the text may be part of
  for (const std::string& word : words_) {
    first = std::min(first, held_.find(word));
    const std::size_t longest = std::min(held_.size(), word.size() - 1);
    for (std::size_t n = longest; n > 0; --n) {
      if (held_.ends_with(std::string_view(word).substr(0, n))) {
        begun = std::min(begun, held_.size() - n);
        break;
      }
    }
  }
  has_stopped_ = first != std::string::npos;
  const std::size_t out = has_stopped_ ? first : begun;
  std::string passed = held_.substr(0, out);
  held_.erase(0, has_stopped_ ? held_.size() : out);
  return passed;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

}  // namespace rooflm::train
