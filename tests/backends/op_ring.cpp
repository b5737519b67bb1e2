// Ring attention on one machine.
#include "tests/backends/op_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "compile/passes/cast.h"
#include "program/ops.h"
#include "tests/backends/op_case_writer.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {

namespace ops = program::ops;
using core::DType;
using program::Pieces;
using program::TensorId;
using Values = std::vector<double>;

program::Attributes heads(std::int64_t dim) {
  return {{"heads", kHeads}, {"kv_heads", kKvHeads}, {"head_dim", dim}};
}

namespace {

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

}  // namespace

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

namespace {

double distance(const Values& actual, const Values& expected) {
  double most = 0;
  double greatest = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    most = std::max(most, std::abs(actual[i] - expected[i]));
    greatest = std::max(greatest, std::abs(expected[i]));
  }
  return actual.size() == expected.size() ? most / greatest : HUGE_VAL;
}

}  // namespace

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

}  // namespace rooflm::tests
