// Speculative decoding: who guesses the next tokens of texts, which the model then reads all at once
// (Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", 2023).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "train/paged_decoder.h"

namespace rooflm::serve {

/// A text whose next tokens somebody guesses.
struct Guessed {
  std::size_t slot = 0;
  std::span<const std::int32_t> tokens{};  ///< the prompt and what was made
  std::int64_t most = 0;                   ///< guesses
  /// The token that the text chooses of these logits [V] as its i-th from now on: with the random number that
  /// is used there, too. Where two models agree, so do then their tokens.
  std::function<std::int32_t(std::span<const float> logits, std::int64_t i)> choose{};
  std::vector<std::int32_t> guesses{};  ///< the answer
};

/// Guesses decide how many tokens a step makes, not which: a guess counts where it is what the model itself
/// chooses.
class Guesser {
 public:
  Guesser() = default;
  Guesser(const Guesser&) = delete;
  Guesser& operator=(const Guesser&) = delete;
  virtual ~Guesser() = default;
  /// Fills in the guesses, of each text at most as many as it wants.
  virtual void guess(std::span<Guessed> texts) = 0;
  /// The slot's text has ended.
  virtual void leave(std::size_t /*slot*/) {}
};

/// What followed the last earlier place where the last three, two or one tokens stood, too (Saxena, "Prompt
/// Lookup Decoding", 2023).
class NgramGuesser : public Guesser {
 public:
  void guess(std::span<Guessed> texts) override;
};

/// What a smaller model of the same vocabulary chooses.
class DraftGuesser : public Guesser {
 public:
  /// As many slots, and texts as long, as the decoder has whose texts are guessed.
  explicit DraftGuesser(train::PagedDecoder& draft) : draft_(&draft), read_(draft.slots()) {}
  void guess(std::span<Guessed> texts) override;
  void leave(std::size_t slot) override;

 private:
  /// Has the draft read what it does not know of the text.
  void catch_up(const Guessed& text);

  train::PagedDecoder* draft_;
  std::vector<std::vector<std::int32_t>> read_;  ///< by slot: tokens that the draft has read or will next
};

}  // namespace rooflm::serve
