// Flash attention against softmax written out in double: odd sizes, grouped heads, with and without the mask,
// windows, caps, ALiBi and sinks.
#include <cstdlib>
#include <memory>

#include "backends/cpu/fast/attention.h"
#include "core/error.h"
#include "cpu_fast_testing.h"
#include "program/scores.h"

namespace rooflm::backends::cpu {
namespace {

struct Expected {
  std::vector<double> o, lse, dqkv, d_sinks;
};

// Forward and gradient of attention in double; o and lse as attention_forward lays them out.
Expected expected_attention(const AttentionShape& s, const std::vector<double>& qkv,
                            const std::vector<double>& d_o, const std::vector<float>& sinks) {
  const std::int64_t row = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const std::int64_t out_row = s.heads * s.head_dim;
  const double scale =
      s.scale != 0 ? static_cast<double>(s.scale) : 1 / std::sqrt(static_cast<double>(s.head_dim));
  Expected e{std::vector<double>(static_cast<std::size_t>(s.batch * s.seq * out_row)),
             std::vector<double>(static_cast<std::size_t>(s.batch * s.heads * s.seq)),
             std::vector<double>(qkv.size()),
             std::vector<double>(static_cast<std::size_t>(s.batch * s.heads))};
  const program::Scores rule{.window = s.window, .alibi = s.alibi};
  const auto cap = static_cast<double>(s.cap);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t kv = h / (s.heads / s.kv_heads);
      const auto q_at = [&](std::int64_t t) {
        return static_cast<std::size_t>((b * s.seq + t) * row + h * s.head_dim);
      };
      const auto k_at = [&](std::int64_t t) {
        return static_cast<std::size_t>((b * s.seq + t) * row + (s.heads + kv) * s.head_dim);
      };
      const auto v_at = [&](std::int64_t t) {
        return static_cast<std::size_t>((b * s.seq + t) * row + (s.heads + s.kv_heads + kv) * s.head_dim);
      };
      const auto dim = static_cast<std::size_t>(s.head_dim);
      for (std::int64_t t = 0; t < s.seq; ++t) {
        const auto out = static_cast<std::size_t>((b * s.seq + t) * out_row + h * s.head_dim);
        const std::int64_t keys = s.causal ? t + 1 : s.seq;
        const std::int64_t first = rule.first_key(t);
        std::vector<double> p(static_cast<std::size_t>(keys));
        std::vector<double> bend(p.size(), 1.0);  // derivative of the cap
        const double sink =
            sinks.empty() ? 0 : std::exp(static_cast<double>(sinks[static_cast<std::size_t>(h)]));
        double sum = sink;
        for (std::int64_t c = first; c < keys; ++c) {
          double score = 0;
          for (std::size_t d = 0; d < dim; ++d) score += qkv[q_at(t) + d] * qkv[k_at(c) + d];
          score *= scale;
          if (cap > 0) {
            bend[static_cast<std::size_t>(c)] = 1 - std::pow(std::tanh(score / cap), 2);
            score = cap * std::tanh(score / cap);
          }
          score -= rule.slope(h, s.heads) * static_cast<double>(t - c);
          sum += p[static_cast<std::size_t>(c)] = std::exp(score);
        }
        e.lse[static_cast<std::size_t>((b * s.heads + h) * s.seq + t)] = std::log(sum);
        double delta = 0;
        for (std::int64_t c = first; c < keys; ++c) {
          p[static_cast<std::size_t>(c)] /= sum;
          for (std::size_t d = 0; d < dim; ++d)
            e.o[out + d] += p[static_cast<std::size_t>(c)] * qkv[v_at(c) + d];
        }
        for (std::size_t d = 0; d < dim; ++d) delta += d_o[out + d] * e.o[out + d];
        e.d_sinks[static_cast<std::size_t>(b * s.heads + h)] -= sink / sum * delta;
        for (std::int64_t c = first; c < keys; ++c) {
          const double pc = p[static_cast<std::size_t>(c)];
          double dp = 0;
          for (std::size_t d = 0; d < dim; ++d) {
            dp += d_o[out + d] * qkv[v_at(c) + d];
            e.dqkv[v_at(c) + d] += pc * d_o[out + d];
          }
          const double ds = pc * (dp - delta) * scale * bend[static_cast<std::size_t>(c)];
          for (std::size_t d = 0; d < dim; ++d) {
            e.dqkv[q_at(t) + d] += ds * qkv[k_at(c) + d];
            e.dqkv[k_at(c) + d] += ds * qkv[q_at(t) + d];
          }
        }
      }
    }
  }
  return e;
}

std::unique_ptr<void, decltype(&std::free)> aligned_bytes(std::size_t bytes) {
  return {std::aligned_alloc(64, (bytes + 64) / 64 * 64), &std::free};
}

template <class S>
class CpuFastAttention : public ::testing::Test {
 protected:
  static void check(const AttentionShape& s, const std::vector<float>& sinks = {}) {
    SCOPED_TRACE("B" + std::to_string(s.batch) + " T" + std::to_string(s.seq) + " H" +
                 std::to_string(s.heads) + " K" + std::to_string(s.kv_heads) + " D" +
                 std::to_string(s.head_dim));
    const auto qkv = random_array<S>(s.batch * s.seq * (s.heads + 2 * s.kv_heads) * s.head_dim, 1);
    const auto d_o = random_array<S>(s.batch * s.seq * s.heads * s.head_dim, 2);
    const Expected e = expected_attention(s, to_double(qkv), to_double(d_o), sinks);
    const float* sink = sinks.empty() ? nullptr : sinks.data();
    std::vector<float> d_sinks(e.d_sinks.size());
    std::vector<S> o(d_o.size());
    std::vector<float> lse(e.lse.size());
    const auto forward_scratch = aligned_bytes(attention_forward_scratch_bytes(s));
    attention_forward(s, qkv.data(), o.data(), lse.data(), forward_scratch.get(), sink);
    constexpr bool kExact = sizeof(S) == 4;
    // bf16: besides the result, probabilities may be rounded to 8 bits before they are summed.
    expect_near(o, e.o, kExact ? 1e-5 : 8e-3, kExact ? 5e-6 : 8e-3, "o");
    expect_near(lse, e.lse, kExact ? 1e-6 : 1e-5, 5e-6, "lse");

    std::vector<S> dqkv(qkv.size(), S(7.0F));
    const auto backward_scratch = aligned_bytes(attention_backward_scratch_bytes(s));
    attention_backward(s, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(), backward_scratch.get(),
                       sink, d_sinks.data());
    expect_near(dqkv, e.dqkv, kExact ? 1e-5 : 1e-2, kExact ? 3e-5 : 6e-2, "dqkv");
    if (sink != nullptr)
      expect_near(d_sinks, e.d_sinks, kExact ? 1e-5 : 1e-2, kExact ? 3e-5 : 6e-2, "d_sinks");

    const Threads single(1);
    std::vector<S> again(o.size());
    attention_forward(s, qkv.data(), again.data(), lse.data(), forward_scratch.get(), sink);
    expect_same_bits(o, again, "o on one thread");
    std::vector<S> gradient_again(dqkv.size());
    attention_backward(s, d_o.data(), qkv.data(), o.data(), lse.data(), gradient_again.data(),
                       backward_scratch.get(), sink, d_sinks.data());
    expect_same_bits(dqkv, gradient_again, "dqkv on one thread");
  }
};
TYPED_TEST_SUITE(CpuFastAttention, StorageTypes);

TYPED_TEST(CpuFastAttention, HeadSizes) {
  for (const std::int64_t dim : {1, 5, 16, 31, 32, 64, 80, 100, 128}) {
    this->check({.batch = 2, .seq = 70, .heads = 2, .kv_heads = 1, .head_dim = dim});
  }
}

TYPED_TEST(CpuFastAttention, Lengths) {
  for (const std::int64_t seq : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200, 300}) {
    this->check({.batch = 1, .seq = seq, .heads = 3, .kv_heads = 3, .head_dim = 24});
  }
}

TYPED_TEST(CpuFastAttention, GroupsAndNoMask) {
  this->check({.batch = 2, .seq = 90, .heads = 6, .kv_heads = 2, .head_dim = 32});
  this->check({.batch = 2, .seq = 90, .heads = 4, .kv_heads = 4, .head_dim = 32, .causal = false});
  this->check(
      {.batch = 1, .seq = 131, .heads = 4, .kv_heads = 1, .head_dim = 20, .causal = false, .scale = 0.3F});
}

/// Windows that begin and end inside of tiles of 64 keys, at their borders, and beyond the text.
TYPED_TEST(CpuFastAttention, Windows) {
  for (const std::int64_t window : {1, 2, 16, 63, 64, 65, 100, 128, 199, 200, 300}) {
    SCOPED_TRACE(window);
    this->check({.batch = 1, .seq = 200, .heads = 2, .kv_heads = 1, .head_dim = 24, .window = window});
  }
}

TYPED_TEST(CpuFastAttention, CapsBiasesAndSinks) {
  const AttentionShape s{.batch = 2, .seq = 150, .heads = 6, .kv_heads = 2, .head_dim = 17};
  const std::vector<float> sinks = {0.5F, -1, 2, 0, 1, 5};
  AttentionShape capped = s;
  capped.cap = 0.6F;
  this->check(capped);
  AttentionShape biased = s;
  biased.alibi = true;
  this->check(biased);
  this->check(s, sinks);
  AttentionShape all = s;
  all.scale = 0.4F;
  all.window = 70;
  all.cap = 1.5F;
  all.alibi = true;
  this->check(all, sinks);
}

TEST(CpuFastAttentionRange, LargeScoresStayFinite) {
  const AttentionShape s{.batch = 1, .seq = 100, .heads = 1, .kv_heads = 1, .head_dim = 16};
  const auto qkv = random_array<float>(100 * 48, 3, 40.0F);
  std::vector<float> o(1600);
  std::vector<float> lse(100);
  const auto scratch = aligned_bytes(attention_forward_scratch_bytes(s));
  attention_forward(s, qkv.data(), o.data(), lse.data(), scratch.get());
  for (const float x : o) ASSERT_TRUE(std::isfinite(x));
  for (const float x : lse) ASSERT_TRUE(std::isfinite(x));
}

TEST(CpuFastAttentionRange, RefusesWhatDoesNotFit) {
  EXPECT_THROW(
      attention_forward_scratch_bytes({.batch = 1, .seq = 4, .heads = 3, .kv_heads = 2, .head_dim = 8}),
      core::UsageError);
  EXPECT_THROW(
      attention_backward_scratch_bytes({.batch = 1, .seq = 0, .heads = 2, .kv_heads = 2, .head_dim = 8}),
      core::UsageError);
}

}  // namespace
}  // namespace rooflm::backends::cpu
