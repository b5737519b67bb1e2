// FLOPs per token by convention, and parameters by block.
#include "model/flop_conventions.h"

#include <algorithm>
#include <utility>

#include "core/checked.h"
#include "core/grouped.h"
#include "core/scope.h"
#include "model/parameters.h"

namespace rooflm::model {
namespace {

using core::Count;

/// Parameters that a token multiplies with.
Count multiplied(const ModelConfig& c) {
  Count n = active_parameter_count(c);
  if (!c.tied_head) n = n - Count(c.vocab) * c.d_model;
  if (c.has_learned_positions()) n = n - (Count(c.max_seq) + c.arch.position_offset) * c.d_model;
  return n;
}

/// FLOPs of attention per token, forward, of all layers. `pairs(window)`: of queries and keys in the
/// sequence.
template <class Pairs>
Count attention_flop(const ModelConfig& c, std::int64_t seq, Pairs&& pairs) {
  Count flop = 0;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const AttentionSize size = c.attention_of(layer);
    const std::int64_t window = c.window_of(layer);
    const Count keys = pairs(Count(window > 0 ? std::min(window, seq) : seq));
    flop += 2 * Count(size.heads) * (Count(size.qk_dim) + size.v_dim) * keys / seq;
  }
  return flop;
}

FlopConvention convention(std::string_view name, std::string_view meaning, Count n, Count attention) {
  return {.name = name,
          .meaning = meaning,
          .training = 6 * n + 3 * attention,
          .forward = 2 * n + attention,
          .frozen = 4 * n + 3 * attention};
}

}  // namespace

std::array<FlopConvention, 5> flop_conventions(const ModelConfig& c, std::int64_t seq) {
  const Count n = multiplied(c);
  const Count full = attention_flop(c, seq, [&](Count) { return Count(seq) * seq; });
  const Count windowed = attention_flop(c, seq, [&](Count window) { return window * seq; });
  const Count causal =
      attention_flop(c, seq, [&](Count window) { return window * seq - window * Count(window - 1) / 2; });
  FlopConvention recompute =
      convention("recompute", "causal, and all layers forward once more in training", n, causal);
  const Count again = 2 * Count(n - Count(c.vocab) * c.d_model) + causal;
  recompute.training = Count(recompute.training) + again;
  recompute.frozen = Count(recompute.frozen) + again;
  return {convention("6n", "6 N, no attention", n, 0),
          convention("full", "6 N and attention to all T keys", n, full),
          convention("windowed", "6 N and attention to min(T, window) keys", n, windowed),
          convention("causal", "6 N and attention to the keys that masks leave", n, causal), recompute};
}

std::vector<std::pair<std::string, std::int64_t>> parameters_by_block(const ModelConfig& config) {
  core::Grouped<std::string, std::pair<std::string, std::int64_t>> blocks;
  for (const Parameter& p : parameters(config)) {
    std::string name = p.name;
    for (const std::string_view suffix : {".weight", ".bias"}) {
      if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    }
    // "h.3.attention.qkv" is the scope "h.3/attention/qkv".
    const std::size_t start = name.starts_with("h.") ? name.find('.', 2) : 0;
    std::replace(name.begin() + static_cast<std::ptrdiff_t>(start), name.end(), '.', '/');
    const std::string block = core::Scope(name).any_layer();
    std::int64_t& sum = blocks.at(block, [&] { return std::pair(block, std::int64_t{0}); }).second;
    sum = Count(sum) + p.shape.numel();
  }
  return std::move(blocks.values());
}

}  // namespace rooflm::model
