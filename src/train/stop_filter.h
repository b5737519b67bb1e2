// Stop words in a text that comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rooflm::train {

/// Passes a text on until one of the words is in it. What may be the beginning of a word is held back.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> words) : words_(std::move(words)) {}
  /// What `text` lets out: all before the first word, which is left out itself. Nothing after it.
  std::string append(std::string_view text);
  /// What was held back, at the end of the text.
  std::string finish();
  [[nodiscard]] bool has_stopped() const { return has_stopped_; }

 private:
  std::vector<std::string> words_;
  std::string held_;
  bool has_stopped_ = false;
};

}  // namespace rooflm::train
