// Texts that join and leave a batch between two steps, as who serves them sees it.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

namespace rooflm::train {

/// Tokens that a step read.
struct StepTokens {
  std::int64_t prefill = 0;  ///< of prompts
  std::int64_t texts = 0;    ///< that were continued
};

/// Slots, each with one text whose next tokens the caller chooses. Used by one thread.
class BatchDecoder {
 public:
  BatchDecoder() = default;
  BatchDecoder(const BatchDecoder&) = delete;
  BatchDecoder& operator=(const BatchDecoder&) = delete;
  virtual ~BatchDecoder() = default;

  [[nodiscard]] virtual std::size_t slots() const = 0;
  [[nodiscard]] virtual std::int64_t longest_prompt() const = 0;
  /// Most tokens of a text.
  [[nodiscard]] virtual std::int64_t positions() const = 0;
  /// Tokens of the slot's text whose keys and values are kept.
  [[nodiscard]] virtual std::int32_t length(std::size_t slot) const = 0;

  /// Tokens of a prompt. std::logic_error if there are none, or more than those of the longest prompt.
  [[nodiscard]] std::int64_t checked_length(std::span<const std::int32_t> prompt) const {
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length < 1 || length > longest_prompt())
      throw std::logic_error(fmt::format("a prompt of {} tokens, of at most {}", length, longest_prompt()));
    return length;
  }

  /// Runs every engine, once the weights are there. Slots are free afterwards.
  virtual void warm_up() = 0;
  /// Whether there is memory for one more text of so many tokens, those to be made included.
  [[nodiscard]] virtual bool has_room(std::int64_t /*tokens*/) const { return true; }
  /// Gives a free slot to a text that may grow to `most` tokens. std::logic_error if the slot is taken, there
  /// is no room, or the text is empty or longer than the longest prompt.
  virtual void add(std::size_t slot, std::span<const std::int32_t> text, std::int64_t most) = 0;
  /// One more step of all slots that are taken.
  virtual StepTokens step() = 0;
  /// Positions of the slot's text whose next token the last add or step computed: 0 while its prompt is read,
  /// otherwise 1 and one for each guess.
  [[nodiscard]] virtual std::size_t computed(std::size_t slot) const = 0;
  /// Logits [V] of the next token after the i-th of these positions, padding of the vocabulary left out.
  [[nodiscard]] virtual std::span<const float> next_logits(std::size_t slot, std::size_t i) const = 0;
  /// The token after the i-th of these positions: the text ends with it. Those before it were chosen, and
  /// were the guesses.
  virtual void choose_next(std::size_t slot, std::size_t i, std::int32_t token) = 0;
  /// Most guesses of a text; 0: it reads one token at a time.
  [[nodiscard]] virtual std::size_t most_guesses() const { return 0; }
  /// The next step reads these tokens, too, as if they followed; as many as have room.
  virtual void guess(std::size_t /*slot*/, std::span<const std::int32_t> /*tokens*/) {}
  /// Frees the slot.
  virtual void leave(std::size_t slot) = 0;
};

}  // namespace rooflm::train
