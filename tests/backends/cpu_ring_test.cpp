// Ring attention on one machine: the blocks of all ranks, put together, are the attention of the whole
// sequence; the fast kernels compute what the reference does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "compile/passes/cast.h"
#include "program/ops.h"
#include "program/pieces.h"
#include "tests/backends/op_case_writer.h"
#include "tests/backends/op_cases.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using backends::CpuKernels;
using core::DType;
using program::Pieces;
using program::TensorId;
using Values = std::vector<double>;

/// The whole attention and its gradient, and those of the ranks that share the sequences.
struct Ring {
  Case whole, blocks;
  TensorId qkv = 0, dy = 0, y = 0, lse = 0, dqkv = 0;
  struct Rank {
    TensorId qkv = 0, dy = 0, keys_values = 0, y = 0, lse = 0, dq = 0, d_keys_values = 0, dqkv = 0;
  };
  std::vector<Rank> ranks;
};

constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2;

program::Attributes heads(std::int64_t dim) {
  return {{"heads", kHeads}, {"kv_heads", kKvHeads}, {"head_dim", dim}};
}

program::Attributes block(std::int64_t dim, std::size_t parts, std::size_t index, std::size_t from) {
  program::Attributes attrs = heads(dim);
  attrs.set("parts", static_cast<std::int64_t>(parts));
  attrs.set("index", static_cast<std::int64_t>(index));
  attrs.set("from", static_cast<std::int64_t>(from));
  return attrs;
}

void add_rank_tensors(Ring& ring, CaseWriter& w, std::int64_t own, std::int64_t dim) {
  const core::Shape queries{kBatch, own, kHeads * dim};
  Ring::Rank rank;
  rank.qkv = w.activation({kBatch, own, (kHeads + 2 * kKvHeads) * dim});
  rank.dy = w.activation(queries);
  rank.keys_values = w.op(ops::kTakeKeysValues, {rank.qkv}, heads(dim))[0];
  ring.ranks.push_back(rank);
}

/// Own keys first, then those of the others as they come around.
void add_forward(Ring& ring, CaseWriter& w, std::int64_t dim) {
  const std::size_t parts = ring.ranks.size();
  for (std::size_t i = 0; i < parts; ++i) {
    Ring::Rank& r = ring.ranks[i];
    const auto first = w.op(ops::kAttentionBlock, {r.qkv, r.keys_values}, block(dim, parts, i, i));
    r.y = first[0];
    r.lse = first[1];
    for (std::size_t step = 1; step < parts; ++step) {
      const std::size_t from = (i + parts - step) % parts;
      const auto more =
          w.op(ops::kAttentionBlock, {r.qkv, ring.ranks[from].keys_values}, block(dim, parts, i, from));
      w.op_into(ops::kJoinBlocks, {r.y, r.lse, more[0], more[1]}, heads(dim), {r.y, r.lse});
    }
  }
}

void add_backward(Ring& ring, CaseWriter& w, std::int64_t dim) {
  const std::size_t parts = ring.ranks.size();
  for (std::size_t step = 0; step < parts; ++step) {
    for (std::size_t i = 0; i < parts; ++i) {
      const std::size_t from = (i + parts - step) % parts;
      Ring::Rank& r = ring.ranks[i];
      Ring::Rank& other = ring.ranks[from];
      const auto attrs = block(dim, parts, i, from);
      std::vector<TensorId> inputs = {r.dy, r.qkv, other.keys_values, r.y, r.lse};
      if (step == 0) {
        const auto gradients = w.op(ops::kAttentionBlockBackward, inputs, attrs);
        r.dq = gradients[0];
        r.d_keys_values = gradients[1];
      } else {
        inputs.insert(inputs.end(), {r.dq, other.d_keys_values});
        w.op_into(ops::kAttentionBlockBackward, inputs, attrs, {r.dq, other.d_keys_values});
      }
    }
  }
  for (Ring::Rank& r : ring.ranks)
    r.dqkv = w.op(ops::kJoinGradients, {r.qkv, r.dq, r.d_keys_values}, heads(dim))[0];
}

Ring ring_of(std::int64_t parts, std::int64_t seq, std::int64_t dim, DType dtype) {
  Ring ring;
  CaseWriter whole("whole");
  ring.qkv = whole.activation({kBatch, seq, (kHeads + 2 * kKvHeads) * dim});
  ring.dy = whole.activation({kBatch, seq, kHeads * dim});
  const auto y = whole.op(ops::kFlashAttention, {ring.qkv}, heads(dim));
  ring.y = y[0];
  ring.lse = y[1];
  ring.dqkv = whole.op(ops::kFlashAttentionBackward, {ring.dy, ring.qkv, ring.y, ring.lse}, heads(dim))[0];
  ring.whole = whole.done();
  CaseWriter blocks("blocks");
  for (std::int64_t i = 0; i < parts; ++i) add_rank_tensors(ring, blocks, seq / parts, dim);
  add_forward(ring, blocks, dim);
  add_backward(ring, blocks, dim);
  ring.blocks = blocks.done();
  for (Case* c : {&ring.whole, &ring.blocks}) passes::cast(c->program, dtype);
  return ring;
}

/// The rank's rows of [B, T, width].
Values own_rows(const Values& whole, std::int64_t seq, const Pieces& pieces) {
  const auto width = static_cast<std::int64_t>(whole.size()) / (kBatch * seq);
  const std::int64_t own = seq / pieces.parts;
  Values rows;
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t t = 0; t < own; ++t) {
      const auto first = whole.begin() + (b * seq + pieces.position(t, own)) * width;
      rows.insert(rows.end(), first, first + width);
    }
  }
  return rows;
}

double distance(const Values& actual, const Values& expected) {
  double most = 0;
  double greatest = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    most = std::max(most, std::abs(actual[i] - expected[i]));
    greatest = std::max(greatest, std::abs(expected[i]));
  }
  return actual.size() == expected.size() ? most / greatest : HUGE_VAL;
}

/// Outputs and gradients of all ranks against those of the whole sequence.
void expect_whole(const Ring& ring, std::int64_t seq, backends::Backend& reference, backends::Backend& tested,
                  double tolerance) {
  OpRunner whole(ring.whole, reference);
  OpRunner blocks(ring.blocks, tested);
  const auto pieces = [&](std::size_t i) {
    return Pieces{.parts = static_cast<std::int64_t>(ring.ranks.size()),
                  .index = static_cast<std::int64_t>(i)};
  };
  for (std::size_t i = 0; i < ring.ranks.size(); ++i) {
    blocks.write(ring.ranks[i].qkv, own_rows(whole.read(ring.qkv), seq, pieces(i)));
    blocks.write(ring.ranks[i].dy, own_rows(whole.read(ring.dy), seq, pieces(i)));
  }
  whole.run_all();
  blocks.run_all();
  for (std::size_t i = 0; i < ring.ranks.size(); ++i) {
    SCOPED_TRACE("rank " + std::to_string(i));
    EXPECT_LT(distance(blocks.read(ring.ranks[i].y), own_rows(whole.read(ring.y), seq, pieces(i))),
              tolerance);
    EXPECT_LT(distance(blocks.read(ring.ranks[i].dqkv), own_rows(whole.read(ring.dqkv), seq, pieces(i))),
              tolerance);
  }
}

/// Sizes of which no tile is full, and some of several tiles; heads of an odd size have no bf16 pairs.
struct Extents {
  std::int64_t parts, seq, dim;
};
constexpr Extents kExtents[] = {{2, 4, 6}, {3, 42, 5}, {2, 300, 16}, {4, 296, 10}};

TEST(RingKernels, ReferenceBlocksAreTheWholeAttention) {
  const auto cpu = backends::make_cpu_backend(CpuKernels::reference, 2);
  for (const auto& [parts, seq, dim] : kExtents)
    expect_whole(ring_of(parts, seq, dim, DType::f64), seq, *cpu, *cpu, 1e-13);
}

/// Sums of fp32; in bf16 each of up to four blocks of y is rounded, 2^-8 of an element, and again where it is
/// joined.
TEST(RingKernels, FastBlocksAreTheWholeAttention) {
  const auto reference = backends::make_cpu_backend(CpuKernels::reference, 2);
  for (const int threads : {1, 3}) {
    const auto fast = backends::make_cpu_backend(CpuKernels::fast, threads);
    for (const auto& [parts, seq, dim] : kExtents) {
      SCOPED_TRACE(seq);
      expect_whole(ring_of(parts, seq, dim, DType::f32), seq, *reference, *fast, 2e-6);
      expect_whole(ring_of(parts, seq, dim, DType::bf16), seq, *reference, *fast, 0x1p-5);
    }
  }
}

TEST(RingKernels, ReferenceTakesBf16) {
  const auto cpu = backends::make_cpu_backend(CpuKernels::reference, 2);
  expect_whole(ring_of(2, 36, 6, DType::bf16), 36, *cpu, *cpu, 0x1p-6);
}

TEST(RingKernels, FastKernelsTakeTheBlocks) {
  const auto fast = backends::make_cpu_backend(CpuKernels::fast, 1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Ring ring = ring_of(2, 8, 4, dtype);
    for (const program::Op& op : ring.blocks.program.ops) {
      if (op.def->work != program::Work::attention) continue;
      const std::string name = fast->make_kernel(ring.blocks.program, op).info.name;
      EXPECT_FALSE(name.starts_with("reference")) << name;
    }
  }
}

/// Positions of pieces are those of the whole sequence: rope on both kinds of kernels, learned ones.
TEST(RingKernels, PositionsAreThoseOfTheSequence) {
  constexpr std::int64_t kSeq = 24, kDim = 6, kParts = 3, kWidth = (kHeads + 2 * kKvHeads) * kDim;
  for (const CpuKernels kind : {CpuKernels::reference, CpuKernels::fast}) {
    const auto cpu = backends::make_cpu_backend(kind, 2);
    program::Attributes attrs = heads(kDim);
    attrs.set("theta", 10000.0);
    attrs.set("inverse", false);
    const auto step = [&](std::int64_t seq, const Pieces& pieces) {
      CaseWriter w("positions");
      const TensorId x = w.activation({kBatch, seq, kWidth});
      const TensorId table = w.weight({kSeq + 1, kWidth});
      if (pieces.parts > 1) pieces.write_to(attrs);
      const TensorId turned = w.op(ops::kRope, {x}, attrs)[0];
      w.op(ops::kAddPositions, {turned, table}, attrs);
      return w.done();
    };
    const Case whole_case = step(kSeq, {});
    OpRunner whole(whole_case, *cpu);
    whole.run_all();
    for (std::int64_t i = 0; i < kParts; ++i) {
      const Pieces pieces{.parts = kParts, .index = i};
      const Case own_case = step(kSeq / kParts, pieces);
      OpRunner own(own_case, *cpu);
      own.write(0, own_rows(whole.read(0), kSeq, pieces));
      own.write(1, whole.read(1));
      own.run_all();
      EXPECT_EQ(own.read(3), own_rows(whole.read(3), kSeq, pieces)) << i;
    }
  }
}

/// Each token belongs to one rank, and all ranks have as many scores below the diagonal.
TEST(Pieces, ShareASequenceOut) {
  for (const std::int64_t parts : {1, 2, 3, 4}) {
    const std::int64_t seq = 12 * parts;
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(2 * seq));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(i);
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < parts; ++i) {
      const auto own = Pieces{.parts = parts, .index = i}.cut(std::span<const std::int64_t>(tokens), seq);
      std::int64_t scores = 0;
      for (std::size_t t = 0; t < own.size() / 2; ++t) scores += own[t] + 1;
      EXPECT_EQ(scores * parts, seq * (seq + 1) / 2);
      all.insert(all.end(), own.begin(), own.end());
    }
    std::ranges::sort(all);
    EXPECT_EQ(all, tokens);
  }
}

}  // namespace
}  // namespace rooflm::tests
