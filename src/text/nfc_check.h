// Whether a text is surely in NFC, Unicode's composed form.
#pragma once

#include <memory>
#include <string_view>

#include "text/bpe_pattern.h"

namespace rooflm::text {

/// For tokenizers that normalize text to NFC (Qwen, Pythia). Most text is in NFC, and is encoded as it is.
/// One per thread.
class NfcCheck {
 public:
  NfcCheck();
  /// Throws core::InputError that names the byte where NFC might change `text`, valid UTF-8: at a character
  /// that is not composed or that may compose with the one before it (NFC_Quick_Check is No or Maybe), and at
  /// two combining marks in a row, whose order may be another (Thai has many).
  void require(std::string_view text);

 private:
  std::unique_ptr<const CompiledPattern> unsure_;
  PatternMatcher matcher_;
};

}  // namespace rooflm::text
