// What forward and backward attention share: checks and counts.
#include "backends/cpu/fast/attention.h"

#include <fmt/format.h>

#include "backends/cpu/fast/attention_tiles.h"
#include "core/error.h"

namespace rooflm::backends::cpu {

void check_attention(const AttentionShape& s) {
  if (s.batch < 1 || s.seq < 1 || s.heads < 1 || s.kv_heads < 1 || s.head_dim < 1) {
    throw core::UsageError(
        fmt::format("attention [{}, {}] with {} heads, {} key/value heads of size {}: every "
                    "extent must be at least 1",
                    s.batch, s.seq, s.heads, s.kv_heads, s.head_dim));
  }
  if (s.heads % s.kv_heads != 0) {
    throw core::UsageError(
        fmt::format("attention: {} key/value heads do not divide {} heads", s.kv_heads, s.heads));
  }
}

namespace {

// One product of [T, D] by [D, T], or its visible half.
double product_flop(const AttentionShape& s) {
  const auto seq = static_cast<double>(s.seq);
  const double scores = s.causal ? seq * (seq + 1) / 2 : seq * seq;
  return 2.0 * static_cast<double>(s.batch * s.heads * s.head_dim) * scores;
}

}  // namespace

double attention_forward_flop(const AttentionShape& shape) { return 2 * product_flop(shape); }
double attention_backward_flop(const AttentionShape& shape) { return 5 * product_flop(shape); }

}  // namespace rooflm::backends::cpu
