// Continuous batching with keys and values in blocks: prompts are read in chunks beside the texts that go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engines/engine.h"
#include "engines/tensor_store.h"
#include "model/forward_paged.h"
#include "train/batch_decoder.h"
#include "train/session.h"

namespace rooflm::train {

struct PagedOptions {
  std::int64_t slots = 8;
  std::int64_t positions = 0;       ///< most tokens of a text
  std::int64_t longest_prompt = 0;  ///< at most `positions`
  std::int64_t chunk = 256;         ///< most tokens of prompts in a step
  std::int64_t block = 16;          ///< positions of a block
  std::int64_t pool = 0;            ///< tokens whose keys and values fit; 0: slots times positions
  std::int64_t guesses = 0;         ///< most guessed tokens of a text and step
};

/// A step reads the newest token of every text, its guesses, and then as many tokens of the oldest prompts as
/// the chunk has room for (chunked prefill: Agrawal et al., "SARATHI", 2023), all as rows of one program.
/// There is a program for each power of two of rows. A text has its blocks from `add` on, for the tokens that
/// it may grow to: nothing is taken from it later. Block 0 is for rows that are padding.
class PagedDecoder : public BatchDecoder {
 public:
  /// The session must outlive it; make this before its weights are filled in. Throws as Session::make_engine,
  /// core::Unavailable as model::paged_step or where the device has no such kernels, and core::UsageError
  /// where the pool is smaller than a text.
  PagedDecoder(Session& session, const PagedOptions& options);

  /// Runs every engine, once the weights are there.
  void warm_up() override;

  [[nodiscard]] std::size_t slots() const override { return texts_.size(); }
  [[nodiscard]] std::int64_t longest_prompt() const override { return options_.longest_prompt; }
  [[nodiscard]] std::int64_t positions() const override { return options_.positions; }
  [[nodiscard]] std::int32_t length(std::size_t slot) const override;
  [[nodiscard]] bool has_room(std::int64_t tokens) const override;
  void add(std::size_t slot, std::span<const std::int32_t> text, std::int64_t most) override;
  StepTokens step() override;
  [[nodiscard]] std::size_t computed(std::size_t slot) const override;
  [[nodiscard]] std::span<const float> next_logits(std::size_t slot, std::size_t i) const override;
  void choose_next(std::size_t slot, std::size_t i, std::int32_t token) override;
  [[nodiscard]] std::size_t most_guesses() const override {
    return static_cast<std::size_t>(options_.guesses);
  }
  void guess(std::size_t slot, std::span<const std::int32_t> tokens) override;
  void leave(std::size_t slot) override;

  [[nodiscard]] std::size_t free_blocks() const { return free_.size(); }

 private:
  struct Text {
    std::vector<std::int32_t> unread{};  ///< tokens without keys and values, then guesses
    std::int32_t length = 0;             ///< tokens with
    std::vector<std::int32_t> blocks{};
    std::int32_t start = 0;     ///< its length when the first of what was computed was
    std::size_t computed = 0;   ///< rows of results
    std::size_t first_row = 0;  ///< of them
    std::uint64_t number = 0;   ///< in the order of `add`
    bool is_reading = true;     ///< its prompt
  };
  struct Rows;

  [[nodiscard]] std::int64_t blocks_of(std::int64_t tokens) const;
  void add_rows(Rows& rows, Text& text, std::size_t count, std::size_t results) const;
  /// With rows of padding behind those.
  void run(engines::Engine& engine, const Rows& rows);

  PagedOptions options_;
  std::size_t vocab_, padded_vocab_;
  std::size_t table_ = 0;                                  ///< blocks of a text's table
  engines::TensorStore caches_;                            // before the engines, which use it
  std::vector<std::unique_ptr<engines::Engine>> engines_;  ///< for 1, 2, 4 .. rows
  std::vector<std::optional<Text>> texts_;                 ///< by slot
  std::vector<std::int32_t> free_;
  std::vector<float> logits_;  ///< [R, padded V]
  std::uint64_t next_ = 0;
};

}  // namespace rooflm::train
