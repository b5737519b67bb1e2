// Continuous batching: texts join and leave between tokens, each with its KV cache in a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engines/engine.h"
#include "engines/tensor_store.h"
#include "model/forward.h"
#include "train/session.h"

namespace rooflm::train {

/// Continuous batching (Yu et al., "Orca", OSDI 2022): a text is read into a free slot while the texts of the
/// other slots wait, and from then on each step reads one more token of every slot. Prompts are read one at a
/// time, padded on the right to a power of two, by one engine for each such length; another engine reads on.
/// All are made in the constructor, so that nothing is built while texts are served. The next token is the
/// most likely one, which the device chooses. Used by one thread.
class SlotDecoder {
 public:
  /// The token of a slot without a text.
  static constexpr std::int32_t kNoToken = -1;

  /// `size.batch` slots of `size.positions` tokens, for prompts of at most `longest_prompt`. The session must
  /// outlive it; make this before its weights are filled in. Throws as Session::make_engine, and
  /// core::UsageError where prompts are longer than positions.
  SlotDecoder(Session& session, const model::CacheSize& size, std::int64_t longest_prompt);

  /// Runs every engine until it is recorded, once the weights are there. Slots are free afterwards.
  void warm_up();

  /// Prefills a free slot with a text and returns the next token. std::logic_error if the slot is taken, or
  /// the text is empty or longer than the longest prompt.
  std::int32_t join(std::size_t slot, std::span<const std::int32_t> text);
  /// Reads the last token of every slot that is taken; returns the next of each, kNoToken of free slots.
  /// std::logic_error where a text fills its slot.
  const std::vector<std::int32_t>& decode();
  /// Frees the slot.
  void leave(std::size_t slot);

  [[nodiscard]] std::size_t slots() const { return tokens_.size(); }
  [[nodiscard]] std::int64_t longest_prompt() const { return longest_prompt_; }
  /// Tokens of the slot's text whose keys and values are kept.
  [[nodiscard]] std::int32_t length(std::size_t slot) const { return lengths_.at(slot); }

 private:
  struct Prefill {
    std::int64_t seq = 0;
    std::unique_ptr<engines::Engine> engine{};
  };

  model::CacheSize size_;
  std::int64_t longest_prompt_;
  engines::TensorStore caches_;    // before the engines, which use it
  std::vector<Prefill> prefills_;  ///< shortest first
  std::unique_ptr<engines::Engine> decode_;
  std::vector<std::int32_t> tokens_, lengths_;  ///< by slot: the last token, and how many are read before it
};

}  // namespace rooflm::train
