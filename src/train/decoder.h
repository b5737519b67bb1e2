// Decoding of several texts with a KV cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engines/engine.h"
#include "engines/tensor_store.h"
#include "model/forward.h"
#include "train/session.h"

namespace rooflm::train {

/// Several texts at once, of any lengths. One engine does prefill, padded on the right to the next power of
/// two (padding does not affect results). The other decodes one token of each text at any lengths, so it is
/// made and recorded once. Used by one thread.
class Decoder {
 public:
  /// No token: the text is not in this step.
  static constexpr std::int32_t kNoToken = -1;

  /// Makes room for `size` and the engine that reads on. The session must outlive it, and its weights must be
  /// loaded; after loading other weights, make a new Decoder. Throws as Session::make_engine.
  Decoder(Session& session, const model::CacheSize& size);

  /// The logits [V] that follow each text, padding of the vocabulary left out.
  using Logits = std::vector<std::vector<float>>;
  /// Prefill: one text for each row, of 1 to `positions` tokens.
  Logits prefill(std::span<const std::span<const std::int32_t>> texts);
  /// Decodes one more token of each text, or kNoToken, whose logits are undefined. std::logic_error if a text
  /// fills its row.
  Logits decode(std::span<const std::int32_t> tokens);

  /// Tokens that were read of each text.
  [[nodiscard]] const std::vector<std::int32_t>& lengths() const { return lengths_; }
  [[nodiscard]] const model::CacheSize& size() const { return size_; }
  /// Of the last prefill or decode.
  [[nodiscard]] const engines::StepTimes& times() const { return times_; }
  /// To which length prefill pads its texts by now.
  [[nodiscard]] std::int64_t prefill_seq() const { return prefill_seq_; }

 private:
  void make_prefill(std::int64_t seq);
  Logits run(engines::Engine& engine);

  Session* session_;
  model::CacheSize size_;
  engines::TensorStore caches_;  // before the engines, which use it
  std::unique_ptr<engines::Engine> prefill_, decode_;
  std::int64_t prefill_seq_ = 0;
  std::vector<std::int32_t> lengths_;
  engines::StepTimes times_;
};

}  // namespace rooflm::train
