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
#include "train/batch_decoder.h"
#include "train/session.h"

namespace rooflm::train {

/// Continuous batching (Yu et al., "Orca", OSDI 2022): a text is read into a free slot while the texts of the
/// other slots wait, and from then on each step reads one more token of every slot. Prompts are read one at a
/// time, padded on the right to a power of two, by one engine for each such length; another engine reads on.
/// All are made in the constructor, so that nothing is built while texts are served. Used by one thread.
class SlotDecoder : public BatchDecoder {
 public:
  /// The token of a slot without a text.
  static constexpr std::int32_t kNoToken = -1;
  /// Who chooses the next token: the device takes the most likely one, or the caller sees the logits.
  enum class Choice : std::uint8_t { device, caller };

  /// `size.batch` slots of `size.positions` tokens, for prompts of at most `longest_prompt`. The session must
  /// outlive it; make this before its weights are filled in. Throws as Session::make_engine, and
  /// core::UsageError where prompts are longer than positions.
  SlotDecoder(Session& session, const model::CacheSize& size, std::int64_t longest_prompt,
              Choice choice = Choice::device);

  /// Runs every engine until it is recorded, once the weights are there. Slots are free afterwards.
  void warm_up() override;

  /// Prefills a free slot with a text and returns the next token (0 where the caller chooses).
  /// std::logic_error if the slot is taken, or the text is empty or longer than the longest prompt.
  std::int32_t join(std::size_t slot, std::span<const std::int32_t> text);
  /// Reads the last token of every slot that is taken; returns the next of each (0 where the caller chooses),
  /// kNoToken of free slots. std::logic_error where a text fills its slot.
  const std::vector<std::int32_t>& decode();
  /// Frees the slot.
  void leave(std::size_t slot) override;

  void add(std::size_t slot, std::span<const std::int32_t> text, std::int64_t /*most*/) override {
    static_cast<void>(join(slot, text));
  }
  StepTokens step() override;
  [[nodiscard]] std::size_t computed(std::size_t slot) const override {
    return tokens_.at(slot) == kNoToken ? 0 : 1;
  }
  /// std::logic_error where the device chooses.
  [[nodiscard]] std::span<const float> next_logits(std::size_t slot, std::size_t i) const override;
  void choose_next(std::size_t slot, std::size_t /*i*/, std::int32_t token) override {
    tokens_.at(slot) = token;
  }
  [[nodiscard]] std::size_t slots() const override { return tokens_.size(); }
  [[nodiscard]] std::int64_t longest_prompt() const override { return longest_prompt_; }
  [[nodiscard]] std::int64_t positions() const override { return size_.positions; }
  [[nodiscard]] std::int32_t length(std::size_t slot) const override { return lengths_.at(slot); }

 private:
  struct Prefill {
    std::int64_t seq = 0;
    std::unique_ptr<engines::Engine> engine{};
  };

  [[nodiscard]] program::Program step_of(program::Program program, const Session& session) const;
  void read_logits(engines::Engine& engine, std::size_t first_slot);

  model::CacheSize size_;
  std::int64_t longest_prompt_;
  Choice choice_;
  std::size_t vocab_, padded_vocab_;
  engines::TensorStore caches_;    // before the engines, which use it
  std::vector<Prefill> prefills_;  ///< shortest first
  std::unique_ptr<engines::Engine> decode_;
  std::vector<float> logits_;                   ///< [B, padded V] where the caller chooses
  std::vector<std::int32_t> tokens_, lengths_;  ///< by slot: the last token, and how many are read before it
};

}  // namespace rooflm::train
