// Writing the forward pass of a model as a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "program/program.h"

namespace rooflm::model {

/// What the forward program ends in.
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

/// Texts that are read with their keys and values kept: tensors "h.N.keys" and "h.N.values" [B, K, P, D] of
/// role cache, the same in both programs, and result "logits" [B, 1, V] fp32 of the token that follows each
/// text. Scopes are those of `forward`. Both throw core::UsageError as it does, and when P exceeds
/// config.max_seq.
struct CacheSize {
  std::int64_t batch = 0;      ///< B
  std::int64_t positions = 0;  ///< P: tokens that are kept of each text at most
};
/// Reads the texts "tokens" [B, T] from the beginning, of "lengths" [B] int32 tokens each; what lies behind
/// those is padding, which nobody sees. T is at most P.
program::Program prefill(const ModelConfig& config, const CacheSize& size, std::int64_t seq);
/// As `prefill`, of `texts` texts alone: their keys and values go to "slots" [texts] int32, each below B, of
/// the same caches, and the other texts' stay. "logits" are [texts, 1, V].
program::Program prefill_slots(const ModelConfig& config, const CacheSize& size, std::int64_t texts,
                               std::int64_t seq);
/// Reads one more token of each, "tokens" [B, 1], at the positions "first" [B] int32: the lengths so far. Its
/// cost is that of texts which are `keys` tokens long then.
program::Program decode(const ModelConfig& config, const CacheSize& size, std::int64_t keys);

/// The program of `prefill_slots` or `decode` with the choice of the most likely token in it: result "next"
/// [texts] int32 in the place of "logits", which stay on the device. Of equal logits the lower id.
program::Program with_choice(program::Program program, const ModelConfig& config);

/// Where a block of the model is defined.
struct BlockSource {
  std::string block;  ///< layers folded: "attention/qkv", "ln_f"
  std::string file;   ///< "src/model/forward.cpp"
  int line = 0;
};

/// The line that opens the scope of each block, in the order of their names. The forward pass is written once
/// more for it, on one token.
std::vector<BlockSource> block_sources(const ModelConfig& config);

}  // namespace rooflm::model
