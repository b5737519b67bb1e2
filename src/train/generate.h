// Text from a model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engines/engine.h"
#include "model/forward.h"
#include "text/tokenizer.h"
#include "train/session.h"

namespace rooflm::train {

struct SamplingOptions {
  std::int64_t tokens = 100;  ///< most tokens to produce
  double temperature = 0.8;   ///< logits are divided by it; 0: always the most likely token
  std::int64_t top_k = 0;     ///< sample from the k most likely tokens; 0: all
  double top_p = 1.0;         ///< only the most likely tokens that together reach this probability
  double min_p = 0;           ///< only tokens at least this likely, relative to the most likely one
  std::uint64_t seed = 0;
  std::int64_t window = 0;       ///< tokens that the model sees at most; 0: its positions, 1024 without any
  bool stop_at_eot = true;       ///< stop where the model ends the text
  bool cache = true;             ///< use a KV cache; otherwise each token processes its whole window again
  std::uint64_t first_text = 0;  ///< number of the first prompt, where the others are read elsewhere
  int warmup = 0;                ///< prefill passes before timing
  std::vector<std::string> stop{};             ///< words that end the text and are left out of it
  std::optional<std::int64_t> top_logprobs{};  ///< log-probabilities: of the token, and of so many tokens
};

/// Throws core::UsageError naming the option and its value when one is out of range.
void validate(const SamplingOptions& options);

/// One token: softmax of logits / temperature over the top_k most likely, of those the fewest that reach
/// top_p and not less likely than min_p times the most likely, then the one at `uniform` in [0, 1) of their
/// cumulative probability, most likely first. Equal logits: the lower id first. Throws core::CheckFailed when
/// a logit is NaN.
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform);

/// A token that was made.
struct MadeToken {
  std::int32_t id = 0;
  double logprob = 0;  ///< natural logarithm of its probability at temperature 1, of all tokens
  std::vector<std::pair<std::int32_t, double>> top{};  ///< of the most likely ones, best first
};

/// The token `id` with log-probabilities: its own, and those of the `most` most likely tokens.
MadeToken with_logprobs(std::span<const float> logits, std::int32_t id, std::int64_t most);

/// Number `index` of the random numbers that `seed` gives: uniform in [0, 1) with 53 random bits.
double sampling_number(std::uint64_t seed, std::uint64_t index);

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

/// One step of generation: every unfinished text gets a token.
struct GenerationStep {
  bool is_prefill = false;    ///< the texts were read from the beginning
  std::int64_t texts = 0;     ///< that got a token
  std::int64_t read = 0;      ///< tokens that are read of these texts, the new ones included
  double seconds = 0;         ///< with choosing tokens, by the host's clock
  engines::StepTimes engine;  ///< of it the program's
};

/// The result of generation.
struct Generation {
  double setup_s = 0;  ///< for making engines and warming them up
  model::CacheSize size{};
  std::int64_t prefill_seq = 0;  ///< to which texts were padded where they were read from the beginning
  std::vector<std::int64_t> prompt_tokens{}, tokens{};  ///< by text
  std::vector<std::vector<MadeToken>> made{};           ///< by text, with SamplingOptions::top_logprobs
  std::vector<GenerationStep> steps{};
  int signal = 0;  ///< that ended it before the texts were done (core::StopSignals); 0: none
};

/// Continues every one of `prompts`, of which none may be empty unless the tokenizer has an end-of-text token
/// to begin with. `write` receives the number of a text and the text as it is produced, without the prompt,
/// in whole UTF-8 characters. The same seed, weights, options and prompts give the same texts; the first text
/// depends on the others only through rounding. A text that fills the window is processed again for every
/// token, without its beginning. Of ranks that share layers (Session::transport) all call it, and the first
/// one's tokens count, whatever the others' rounding is. A signal (core::StopSignals; of those ranks the
/// first one's) ends it after the token that is being computed, the first at the earliest. Throws
/// core::UsageError on an empty prompt without such a token, core::InputError when the tokenizer has ids
/// beyond the model's vocabulary.
Generation generate(Session& session, const text::Tokenizer& tokenizer, std::span<const std::string> prompts,
                    const SamplingOptions& options,
                    const std::function<void(std::size_t text, const std::string&)>& write);

}  // namespace rooflm::train
