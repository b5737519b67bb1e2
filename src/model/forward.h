// Emits the forward pass of a model as a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "program/program.h"

namespace rooflm::model {

/// The output of the forward program.
enum class Head : std::uint8_t {
  loss,    ///< result "loss" [1]: mean cross-entropy in nats over B*T tokens
  logits,  ///< result "logits" [B*T, V] fp32
};

/// The forward pass on tokens [B, T] and targets [B, T] (inputs "tokens" and "targets", int32). Blocks are
/// scopes: embedding; h.N/ ln1, attention/{qkv,qk,softmax,v,proj}, residual1, ln2,
/// feed_forward/{fc1,act,fc2}, residual2; ln_f; lm_head; loss. Weights are tensors of role weight named as in
/// model/parameters.h. Everything is fp32; passes change that. Throws core::UsageError when seq exceeds
/// config.max_seq.
program::Program forward(const ModelConfig& config, std::int64_t batch, std::int64_t seq,
                         Head head = Head::loss);

/// Generation with key/value caches: tensors "h.N.keys" and "h.N.values" [B, K, P, D] of role cache, the same
/// in both programs, and result "logits" [B, 1, V] fp32 of each text's next token. Scopes are those of
/// `forward`. Both throw core::UsageError as it does, and if P exceeds config.max_seq.
struct CacheSize {
  std::int64_t batch = 0;      ///< B
  std::int64_t positions = 0;  ///< P: most tokens of a text
};
/// Processes the prompts "tokens" [B, T], of "lengths" [B] int32 tokens each; tokens beyond a text's length
/// are padding, which nothing attends to. T is at most P.
program::Program prefill(const ModelConfig& config, const CacheSize& size, std::int64_t seq);
/// As `prefill`, but only for `texts` texts: their keys and values go to "slots" [texts] int32, each below B,
/// of the same caches; other slots do not change. "logits" are [texts, 1, V].
program::Program prefill_slots(const ModelConfig& config, const CacheSize& size, std::int64_t texts,
                               std::int64_t seq);
/// Processes one more token per text, "tokens" [B, 1], at the positions "first" [B] int32: the current
/// lengths. Its cost is that of texts with `keys` tokens.
program::Program decode(const ModelConfig& config, const CacheSize& size, std::int64_t keys);

/// The program of `prefill_slots` or `decode` with greedy sampling in it: result "next" [texts] int32 instead
/// of "logits", which stay on the device. Ties go to the lower id.
program::Program with_choice(program::Program program, const ModelConfig& config);

/// The source line that defines a block of the model.
struct BlockSource {
  std::string block;  ///< layers folded: "attention/qkv", "ln_f"
  std::string file;   ///< "src/model/forward.cpp"
  int line = 0;
};

/// The line that opens the scope of each block, sorted by block. Determined by emitting the forward pass once
/// for one token.
std::vector<BlockSource> block_sources(const ModelConfig& config);

}  // namespace rooflm::model
