// CUDA decode attention against plain loops in double: texts of all lengths, whatever number of parts their
// caches are cut into.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/kernels/attention/decode_attention.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using backends::cuda::DecodeShape;
using core::DType;
using DecodeValues = std::vector<double>;

double alibi_slope(std::int64_t h, std::int64_t heads) {
  const auto n = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  return h < n ? std::pow(2, -8.0 * static_cast<double>(h + 1) / static_cast<double>(n))
               : std::pow(2, -4.0 * static_cast<double>(2 * (h - n) + 1) / static_cast<double>(n));
}

/// y [B, H D], with the row of qkv in its place in the caches.
DecodeValues decode_reference(const DecodeShape& s, const std::vector<std::int32_t>& first,
                              const DecodeValues& qkv, DecodeValues& k, DecodeValues& v,
                              const DecodeValues& sinks) {
  const auto& rules = s.rules;
  DecodeValues y;
  const std::int64_t width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const std::int64_t position = first[at(b)];
    for (std::int64_t head = 0; head < s.kv_heads; ++head) {
      const std::int64_t row = ((b * s.kv_heads + head) * s.positions + position) * s.head_dim;
      const std::int64_t key = b * width + (s.heads + head) * s.head_dim;
      std::copy_n(qkv.begin() + key, s.head_dim, k.begin() + row);
      std::copy_n(qkv.begin() + key + s.kv_heads * s.head_dim, s.head_dim, v.begin() + row);
    }
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t cache = (b * s.kv_heads + h / (s.heads / s.kv_heads)) * s.positions * s.head_dim;
      const double* q = &qkv[at(b * width + h * s.head_dim)];
      DecodeValues p;
      double sum = rules.sinks ? std::exp(sinks[at(h)]) : 0;
      const std::int64_t begin =
          rules.window > 0 ? std::max<std::int64_t>(position + 1 - rules.window, 0) : 0;
      for (std::int64_t t = begin; t <= position; ++t) {
        double score = 0;
        for (std::int64_t d = 0; d < s.head_dim; ++d) score += q[d] * k[at(cache + t * s.head_dim + d)];
        score *= rules.scale > 0 ? double{rules.scale} : 1 / std::sqrt(static_cast<double>(s.head_dim));
        if (rules.cap > 0) score = rules.cap * std::tanh(score / rules.cap);
        if (rules.alibi) score -= alibi_slope(h, s.heads) * static_cast<double>(position - t);
        p.push_back(std::exp(score));
        sum += p.back();
      }
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        double value = 0;
        for (std::int64_t t = begin; t <= position; ++t)
          value += p[at(t - begin)] * v[at(cache + t * s.head_dim + d)];
        y.push_back(value / sum);
      }
    }
  }
  return y;
}

void test_decode(DType dtype, const DecodeShape& s, const std::vector<std::int32_t>& first, int parts,
                 std::size_t shift = 0) {
  SCOPED_TRACE(std::string(core::name_of(dtype)) + " H " + std::to_string(s.heads) + " K " +
               std::to_string(s.kv_heads) + " D " + std::to_string(s.head_dim) + " parts " +
               std::to_string(parts) + " first " + std::to_string(first[0]) +
               (shift > 0 ? ", unaligned" : "") + " window " + std::to_string(s.rules.window) + " cap " +
               std::to_string(s.rules.cap) + (s.rules.alibi ? " ALiBi" : "") +
               (s.rules.sinks ? " sinks" : ""));
  const std::int64_t rows = s.batch * s.kv_heads * s.positions * s.head_dim;
  const DecodeValues qkv = random_values(dtype, s.batch * (s.heads + 2 * s.kv_heads) * s.head_dim, 1, 2);
  DecodeValues k = random_values(dtype, rows, 2);
  DecodeValues v = random_values(dtype, rows, 3);
  const DeviceArray device_qkv(dtype, qkv, shift);
  const DeviceArray device_k(dtype, k, shift);
  const DeviceArray device_v(dtype, v, shift);
  const DeviceArray y(dtype, at(s.batch * s.heads * s.head_dim), shift);
  const DeviceBytes device_first(first.size() * sizeof(std::int32_t));
  check_cuda(cudaMemcpy(device_first.at(0), first.data(), device_first.bytes(), cudaMemcpyHostToDevice),
             "copying");
  const DeviceBytes workspace(decode_workspace_bytes(s, parts));
  const DeviceBytes counters(decode_counter_bytes(s));
  check_cuda(cudaMemset(counters.at(0), 0, counters.bytes()), "zeroing");
  const DecodeValues sinks = random_values(DType::f32, s.heads, 4);
  const DeviceArray device_sinks(DType::f32, sinks);
  const DecodeValues expected = decode_reference(s, first, qkv, k, v, sinks);
  const double tolerance = dtype == DType::f32 ? 1e-5 : dtype == DType::bf16 ? 8e-3 : 1e-3;
  DecodeValues before;
  for (int i = 0; i < 3; ++i) {  // counters go back to zero; the same bits
    launch_decode_attention(nullptr, dtype, s, parts, device_qkv.data(),
                            static_cast<const std::int32_t*>(device_first.at(0)), device_k.data(),
                            device_v.data(), y.data(), workspace.at(0), counters.at(0),
                            {.data = s.rules.sinks ? device_sinks.data() : nullptr});
    expect_close(y.read(), expected, tolerance);
    if (i > 0) {
      EXPECT_EQ(y.read(), before);
    }
    before = y.read();
  }
  EXPECT_EQ(device_k.read(), k);
  EXPECT_EQ(device_v.read(), v);
}

TEST_F(CudaKernels, DecodeAttentionOfAllHeadSizes) {
  for (const std::int64_t dim : {8, 32, 40, 64, 72, 128, 136, 256, 5}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const DecodeShape shape{.batch = 2, .heads = 2, .kv_heads = 2, .head_dim = dim, .positions = 300};
      test_decode(dtype, shape, {199, 64}, 3);
    }
  }
}

TEST_F(CudaKernels, DecodeAttentionOfAllLengths) {
  const DecodeShape shape{.batch = 3, .heads = 4, .kv_heads = 4, .head_dim = 64, .positions = 1100};
  for (const int parts : {1, 2, 5, 17}) {
    for (const std::int32_t first : {0, 1, 3, 15, 62, 63, 64, 65, 127, 128, 500, 1023}) {
      test_decode(DType::bf16, shape, {first, 1099 - first, first / 2}, parts);
    }
  }
}

TEST_F(CudaKernels, DecodeAttentionOfSharedKeys) {
  for (const std::int64_t dim : {64, 80, 128, 192}) {
    for (const std::int64_t heads : {2, 4, 6, 8, 14, 16, 20}) {
      const DecodeShape shape{.batch = 2, .heads = heads, .kv_heads = 2, .head_dim = dim, .positions = 300};
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (const std::size_t shift : {0, 1}) test_decode(dtype, shape, {255, 10}, 4, shift);
      }
    }
  }
}

TEST_F(CudaKernels, DecodeAttentionByRules) {
  using backends::cuda::ScoreRules;
  const std::vector<ScoreRules> all = {
      {.window = 1},
      {.window = 70},
      {.window = 64, .sinks = true},
      {.window = 500},
      {.scale = 0.3F, .cap = 1.5F},
      {.alibi = true},
      {.sinks = true},
      {.window = 150, .scale = 0.3F, .cap = 2.0F, .alibi = true, .sinks = true}};
  for (const ScoreRules& rules : all) {
    for (const std::int64_t heads : {2, 6}) {
      DecodeShape shape{.batch = 2, .heads = heads, .kv_heads = 2, .head_dim = 64, .positions = 400};
      shape.rules = rules;
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (const std::int32_t first : {0, 69, 70, 255, 399})
          test_decode(dtype, shape, {first, 390 - first / 2}, 3);
      }
    }
  }
}

/// Three rows of one text and one of another, in blocks that lie anywhere, against a cache of each text: the
/// same bits.
void test_paged(DType dtype, std::int64_t block, const backends::cuda::ScoreRules& rules) {
  SCOPED_TRACE(std::string(core::name_of(dtype)) + " blocks of " + std::to_string(block));
  constexpr std::int64_t kBlocks = 6, kHeads = 6, kKvHeads = 2, kDim = 64;
  constexpr int kParts = 3;
  const std::int64_t positions = kBlocks * block;
  const std::int64_t row = (kHeads + 2 * kKvHeads) * kDim;
  const auto shape_of = [&](std::int64_t rows) {
    return DecodeShape{.batch = rows,
                       .heads = kHeads,
                       .kv_heads = kKvHeads,
                       .head_dim = kDim,
                       .positions = positions,
                       .rules = rules};
  };
  const std::int64_t last = positions - 1;
  const std::vector<std::int32_t> first = {static_cast<std::int32_t>(last - 2),
                                           static_cast<std::int32_t>(last - 1),
                                           static_cast<std::int32_t>(last), static_cast<std::int32_t>(block)};
  const std::vector<std::int64_t> text_of = {0, 0, 0, 1};
  const DecodeValues qkv = random_values(dtype, 4 * row, 1, 2);
  const DecodeValues k = random_values(dtype, 2 * kKvHeads * positions * kDim, 2);
  const DecodeValues v = random_values(dtype, 2 * kKvHeads * positions * kDim, 3);
  // The blocks of both texts are scattered over 13, of which one is nobody's.
  const auto place = [](std::int64_t text, std::int64_t i) { return (5 * (kBlocks * text + i) + 3) % 13; };
  const auto in_blocks = [&](const DecodeValues& whole) {
    DecodeValues blocks(at(13 * kKvHeads * block * kDim), 0.5);
    for (std::int64_t text = 0; text < 2; ++text) {
      for (std::int64_t head = 0; head < kKvHeads; ++head) {
        for (std::int64_t i = 0; i < kBlocks; ++i)
          std::copy_n(whole.begin() + ((text * kKvHeads + head) * positions + i * block) * kDim, block * kDim,
                      blocks.begin() + (place(text, i) * kKvHeads + head) * block * kDim);
      }
    }
    return blocks;
  };
  std::vector<std::int32_t> table;
  for (const std::int64_t text : text_of)
    for (std::int64_t i = 0; i < kBlocks; ++i) table.push_back(static_cast<std::int32_t>(place(text, i)));
  const DeviceBytes workspace(decode_workspace_bytes(shape_of(4), kParts));
  const DeviceBytes counters(decode_counter_bytes(shape_of(4)));
  check_cuda(cudaMemset(counters.at(0), 0, counters.bytes()), "zeroing");
  const DeviceArray device_sinks(DType::f32, random_values(DType::f32, kHeads, 4));
  const backends::cuda::Sinks sinks{.data = rules.sinks ? device_sinks.data() : nullptr};

  const DeviceArray device_qkv(dtype, qkv), device_k(dtype, in_blocks(k)), device_v(dtype, in_blocks(v));
  const DeviceArray y(dtype, at(4 * kHeads * kDim));
  const DeviceIds device_first(first), device_table(table);
  launch_paged_attention(nullptr, dtype, shape_of(4),
                         {.blocks = device_table.data(), .block = static_cast<int>(block), .width = kBlocks},
                         kParts, device_qkv.data(), device_first.data(), device_k.data(), device_v.data(),
                         y.data(), workspace.at(0), counters.at(0), sinks);

  DecodeValues expected;
  const DeviceArray whole_k(dtype, k), whole_v(dtype, v), one(dtype, at(kHeads * kDim));
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto cache = at(text_of[i] * kKvHeads * positions * kDim) * core::size_of(dtype);
    const DeviceIds position({first[i]});
    launch_decode_attention(nullptr, dtype, shape_of(1), kParts,
                            static_cast<std::byte*>(device_qkv.data()) + i * at(row) * core::size_of(dtype),
                            position.data(), static_cast<std::byte*>(whole_k.data()) + cache,
                            static_cast<std::byte*>(whole_v.data()) + cache, one.data(), workspace.at(0),
                            counters.at(0), sinks);
    const DecodeValues read = one.read();
    expected.insert(expected.end(), read.begin(), read.end());
  }
  EXPECT_EQ(y.read(), expected);
}

TEST_F(CudaKernels, PagedAttentionHasTheBitsOfWholeCaches) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t block : {1, 16, 33, 64}) {
      test_paged(dtype, block, {});
      test_paged(dtype, block, {.window = 40, .cap = 2.0F, .sinks = true});
    }
  }
}

TEST_F(CudaKernels, DecodePartsFillTheMultiprocessorsButNotWithCrumbs) {
  const auto parts = [](std::int64_t batch, std::int64_t positions) {
    return backends::cuda::decode_parts(
        {.batch = batch, .heads = 8, .kv_heads = 8, .head_dim = 64, .positions = positions}, 100);
  };
  EXPECT_EQ(parts(1, 4096), 50);  // 400 blocks of 8 heads
  EXPECT_EQ(parts(1, 640), 10);   // of 64 keys each
  EXPECT_EQ(parts(64, 4096), 1);
}

}  // namespace
}  // namespace rooflm::tests
