// Emits the blocks of a model into a program. Of src/model alone: model/forward.h has the programs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"
#include "program/builder.h"
#include "program/program.h"

namespace rooflm::model {

using program::Attributes;
using program::Builder;
using program::TensorId;

/// Emits one model. Shapes in comments: B batch, T sequence, C channels, F feed-forward, V vocabulary.
class Writer {
 public:
  Writer(program::Program& program, const ModelConfig& config, std::int64_t batch, std::int64_t seq)
      : builder_(program), config_(config), batch_(batch), seq_(seq) {
    next_weight_ = static_cast<TensorId>(program.tensors.size());
    std::vector<Parameter> weights = parameters(config);
    reserve(program, weights.size());
    for (Parameter& p : weights) {
      program.add_tensor({.name = std::move(p.name),
                          .shape = p.shape,
                          .role = program::Role::weight,
                          .full_precision = true});
    }
  }

  TensorId embedding(TensorId tokens);

  /// From here on keys and values are cached. Rows begin at position `first` (kNone: 0); texts have `keys`
  /// tokens.
  void keep(std::int64_t positions, TensorId first, std::int64_t keys);
  /// The keys and values of text b go into slot slots[b] of `count`.
  void keep_in(TensorId slots, std::int64_t count);
  /// They are in a pool of `count` blocks of `block` positions, of which each row has its table.
  void keep_in_blocks(TensorId table, std::int64_t count, std::int64_t block);
  /// x [R, 1, C] of some of the rows [N, 1, C].
  TensorId picked(TensorId x, TensorId rows);
  /// x [B, 1, C] of the last tokens of texts [B, T, C].
  TensorId last_rows(TensorId x, TensorId lengths);

  /// x + attention(ln1(x)), then + feed_forward(ln2(x)), or as Residual and NormPlace say.
  TensorId block(TensorId x, std::int64_t layer);

  /// y = norm(x)  [B, T, C]
  TensorId norm(TensorId x, const std::string& block, const std::string& name);

  /// logits [B*T, V] = x [B*T, C] W^T
  TensorId lm_head(TensorId x);

  void loss(TensorId logits, TensorId targets);

  void note_lines(std::map<std::string, program::SourceLine>& lines) { builder_.note_lines(lines); }

 private:
  /// Reserves memory for the whole program and for what differentiation and the optimizer add, so the lists
  /// of a deep model are not reallocated as they grow. Unused capacity costs no memory.
  void reserve(program::Program& program, std::size_t weights) const;

  /// Weights are requested in the order of the parameters, except that a tied head reuses an earlier one.
  TensorId weight(const std::string& name);

  /// Whether the model has that parameter after those that were asked for.
  [[nodiscard]] bool is_next(const std::string& name);

  /// y [.., out] = x [.., in] W^T with W [out, in]
  TensorId matmul(TensorId x, TensorId w, std::int64_t in, std::int64_t out, const std::string& name);

  TensorId linear(TensorId x, const std::string& weight_name, std::int64_t in, std::int64_t out,
                  const std::string& name);

  /// factor * x
  TensorId scaled(TensorId x, double factor);

  TensorId residual(TensorId x, TensorId branch, const std::string& block);

  TensorId attention(TensorId x, const std::string& prefix, std::int64_t layer);

  TensorId normed_heads(TensorId qkv, const std::string& prefix, const Attributes& heads,
                        const AttentionSize& size, std::int64_t layer);

  TensorId rotated(TensorId qkv, const Attributes& heads, const AttentionSize& size, std::int64_t window);

  /// x rotated. `attributes`: those of its heads. `window`: of the layer.
  TensorId rope(TensorId x, Attributes attributes, std::int64_t window);

  /// Of frequencies, as program/rotary.h reads it.
  void set_scaling(Attributes& rope) const;

  /// y [B, T, H Dv] of attention that no packed projection has.
  TensorId sized_attention(std::vector<TensorId> inputs, const AttentionSize& size, std::int64_t window);

  /// y [B, T, H Dv]: queries, keys and values through matmuls of low rank.
  TensorId latent_attention(TensorId x, const std::string& prefix, const AttentionSize& size);

  /// The caches of compressed keys and values, to which a prompt's are appended.
  std::vector<TensorId> kept_latents(TensorId latent, TensorId rotary, const std::string& prefix);

  /// q and what the keys' indexer computes for it: its scores count as a part of attention's inputs.
  std::vector<TensorId> indexed(std::vector<TensorId> inputs, TensorId x, TensorId latent,
                                const std::string& prefix);

  std::vector<TensorId> with_first(std::vector<TensorId> inputs) const;

  /// The layer's keys or values [B, K, P, D].
  TensorId cache(const std::string& name, const Attributes& heads);

  /// y [B, T, H D] of scores as the model has them. `sinks`: [H], or none.
  TensorId packed_attention(TensorId qkv, TensorId sinks, const std::string& prefix, const Attributes& heads,
                            std::int64_t layer);

  /// The same with the attributes `attrs`; caches the keys and values of these rows.
  TensorId kept_attention(TensorId qkv, TensorId sinks, const std::string& prefix, const Attributes& heads,
                          Attributes attrs);

  TensorId feed_forward(TensorId x, const std::string& prefix, std::int64_t width);

  TensorId activated(TensorId h, const std::string& prefix);

  /// y [B, T, C]: the weighted sum of each token's experts, and what all tokens take. Shapes in comments: N
  /// tokens, E experts of width F, K of each token, R = N K.
  TensorId experts(TensorId x, const std::string& prefix);

  /// y [R, out]: rows [R, in], those of one expert after those of another, by its W [out, in].
  TensorId expert_linear(TensorId rows, TensorId offsets, const std::string& name, const std::string& block);

  Builder builder_;
  const ModelConfig& config_;
  std::int64_t batch_, seq_;
  TensorId next_weight_;
  std::int64_t positions_ = 0;  ///< positions per cache; 0: no cache
  std::int64_t keys_ = 0;
  std::int64_t places_ = 0;  ///< slots or blocks of the caches; 0: one per text of the batch
  std::int64_t block_ = 0;   ///< positions of a block; 0: caches are not in blocks
  TensorId table_ = program::kNone;
  TensorId first_ = program::kNone, slots_ = program::kNone;
};

}  // namespace rooflm::model
