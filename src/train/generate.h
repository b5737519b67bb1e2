// Text from a model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer.h"
#include "train/session.h"

namespace rooflm::train {

struct SamplingOptions {
  std::int64_t tokens = 100;  ///< most tokens to produce
  double temperature = 0.8;   ///< logits are divided by it; 0: always the most likely token
  std::int64_t top_k = 0;     ///< only the k most likely tokens; 0: all
  double top_p = 1.0;         ///< only the most likely tokens that together reach this probability
  std::uint64_t seed = 0;
  std::int64_t window = 0;  ///< tokens that the model sees at most; 0: its positions, 1024 without any
  bool stop_at_eot = true;  ///< stop where the model ends the text
};

/// Throws core::UsageError naming the option and its value when one is out of range.
void validate(const SamplingOptions& options);

/// One token: softmax of logits / temperature over the top_k most likely, of those the fewest that reach
/// top_p, then the one at `uniform` in [0, 1) of their cumulative probability, most likely first. Equal
/// logits: the lower id first. Throws core::CheckFailed when a logit is NaN.
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform);

/// Cuts a stream of bytes into pieces of whole UTF-8 characters.
class Utf8Stream {
 public:
  /// What `bytes` completes; an unfinished character is kept for later. Bytes that are no UTF-8 become
  /// U+FFFD.
  std::string append(std::string_view bytes);
  /// The rest: U+FFFD for an unfinished character.
  std::string finish();

 private:
  std::string pending_;
};

/// Continues `prompt`, which must not be empty unless the tokenizer has an end-of-text token to begin with.
/// `write` receives the text as it is produced, without the prompt, in whole UTF-8 characters. The same seed,
/// weights and options give the same text. Returns the number of tokens produced. Throws core::UsageError on
/// an empty prompt without such a token, core::InputError when the tokenizer has ids beyond the model's
/// vocabulary.
std::int64_t generate(Session& session, const text::Tokenizer& tokenizer, const std::string& prompt,
                      const SamplingOptions& options, const std::function<void(const std::string&)>& write);

}  // namespace rooflm::train
