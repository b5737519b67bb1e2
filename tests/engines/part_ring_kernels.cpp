// Kernels of ring attention.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "compile/passes/ring_attention.h"
#include "program/groups.h"
#include "tests/engines/part_kernels.h"
#include "tests/engines/part_operands.h"

namespace rooflm::tests {
namespace {

using backends::Kernel;
using backends::KernelArgs;
using backends::KernelRow;
using program::Op;
using program::Program;
using Index = std::int64_t;

struct Extents {
  Index batch, seq, heads, kv_heads, dim, index, parts, from;
  Extents(const Operands& o, std::size_t qkv)
      : batch(o.shape(qkv)[0]),
        seq(o.shape(qkv)[1]),
        heads(o.integer("heads")),
        kv_heads(o.integer("kv_heads")),
        dim(o.integer("head_dim")),
        index(o.integer("index")),
        parts(o.integer("parts")),
        from(o.integer("from")) {}
  [[nodiscard]] Index width() const { return (heads + 2 * kv_heads) * dim; }
  [[nodiscard]] Index q(Index b, Index t, Index h) const { return (b * seq + t) * width() + h * dim; }
  [[nodiscard]] Index k(Index b, Index t, Index h) const {
    return (b * seq + t) * 2 * kv_heads * dim + h / (heads / kv_heads) * dim;
  }
  [[nodiscard]] Index v(Index b, Index t, Index h) const { return k(b, t, h) + kv_heads * dim; }
  [[nodiscard]] Index y(Index b, Index t, Index h) const { return ((b * seq + t) * heads + h) * dim; }
  [[nodiscard]] Index lse(Index b, Index t, Index h) const { return (b * heads + h) * seq + t; }
  [[nodiscard]] bool sees(Index query, Index key) const {
    return position(key, seq, from, parts) <= position(query, seq, index, parts);
  }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(dim)); }
};

double dot(const Values& a, Index i, const Values& b, Index k, Index count) {
  double sum = 0;
  for (Index c = 0; c < count; ++c) sum += a[at(i + c)] * b[at(k + c)];
  return sum;
}

/// Calls body(b, h, t) for all queries.
template <class Body>
void for_queries(const Extents& e, Body&& body) {
  for (Index b = 0; b < e.batch; ++b)
    for (Index h = 0; h < e.heads; ++h)
      for (Index t = 0; t < e.seq; ++t) body(b, h, t);
}

void take_keys_values(const Operands& o) {
  const Values qkv = o.in(0);
  const Index own = o.out_shape(0)[-1];
  const Index width = o.shape(0)[-1];
  Values taken(at(o.out_shape(0).numel()));
  for (Index r = 0; r < o.shape(0)[0] * o.shape(0)[1]; ++r)
    std::copy_n(qkv.begin() + (r + 1) * width - own, own, taken.begin() + r * own);
  o.set(0, taken);
}

void attention_block(const Operands& o) {
  const Extents e(o, 0);
  const Values qkv = o.in(0);
  const Values kv = o.in(1);
  Values y(at(o.out_shape(0).numel()));
  Values lse(at(o.out_shape(1).numel()), kNothing);
  for_queries(e, [&](Index b, Index h, Index t) {
    Values scores(at(e.seq), kNothing);
    for (Index u = 0; u < e.seq; ++u) {
      if (e.sees(t, u)) scores[at(u)] = e.scale() * dot(qkv, e.q(b, t, h), kv, e.k(b, u, h), e.dim);
    }
    const double greatest = *std::max_element(scores.begin(), scores.end());
    if (greatest == kNothing) return;
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - greatest);
    lse[at(e.lse(b, t, h))] = greatest + std::log(sum);
    for (Index u = 0; u < e.seq; ++u) {
      const double p = std::exp(scores[at(u)] - greatest) / sum;
      for (Index c = 0; c < e.dim; ++c) y[at(e.y(b, t, h) + c)] += p * kv[at(e.v(b, u, h) + c)];
    }
  });
  o.set(0, y);
  o.set(1, lse);
}

/// Heads of y lie beside each other in a row, those of lse one after another.
void join_blocks(const Operands& o) {
  Values y = o.in(0);
  Values lse = o.in(1);
  const Values more = o.in(2);
  const Values more_lse = o.in(3);
  const Index heads = o.shape(1)[1];
  const Index seq = o.shape(1)[2];
  const Index dim = o.shape(0)[-1] / heads;
  for (Index i = 0; i < static_cast<Index>(lse.size()); ++i) {
    const Index b = i / (heads * seq);
    const Index h = i / seq % heads;
    const Index first = ((b * seq + i % seq) * heads + h) * dim;
    const double greatest = std::max(lse[at(i)], more_lse[at(i)]);
    if (greatest == kNothing) continue;
    const double joined =
        greatest + std::log(std::exp(lse[at(i)] - greatest) + std::exp(more_lse[at(i)] - greatest));
    for (Index c = first; c < first + dim; ++c) {
      y[at(c)] = std::exp(lse[at(i)] - joined) * y[at(c)] + std::exp(more_lse[at(i)] - joined) * more[at(c)];
    }
    lse[at(i)] = joined;
  }
  o.set(0, y);
  o.set(1, lse);
}

void attention_block_backward(const Operands& o) {
  const Extents e(o, 1);
  const Values dy = o.in(0);
  const Values qkv = o.in(1);
  const Values kv = o.in(2);
  const Values y = o.in(3);
  const Values lse = o.in(4);
  const bool accumulates = o.inputs() > 5;
  Values dq = accumulates ? o.out(0) : Values(at(o.out_shape(0).numel()));
  Values dkv = accumulates ? o.in(6) : Values(at(o.out_shape(1).numel()));
  for_queries(e, [&](Index b, Index h, Index t) {
    const Index row = e.y(b, t, h);
    const double delta = dot(dy, row, y, row, e.dim);
    for (Index u = 0; u < e.seq; ++u) {
      if (!e.sees(t, u)) continue;
      const double score = e.scale() * dot(qkv, e.q(b, t, h), kv, e.k(b, u, h), e.dim);
      const double p = std::exp(score - lse[at(e.lse(b, t, h))]);
      const double ds = e.scale() * p * (dot(dy, row, kv, e.v(b, u, h), e.dim) - delta);
      for (Index c = 0; c < e.dim; ++c) {
        dq[at(row + c)] += ds * kv[at(e.k(b, u, h) + c)];
        dkv[at(e.k(b, u, h) + c)] += ds * qkv[at(e.q(b, t, h) + c)];
        dkv[at(e.v(b, u, h) + c)] += p * dy[at(row + c)];
      }
    }
  });
  o.set(0, dq);
  o.set(1, dkv);
}

void join_gradients(const Operands& o) {
  const Values dq = o.in(1);
  const Values dkv = o.in(2);
  const Index queries = o.shape(1)[-1];
  const Index others = o.shape(2)[-1];
  Values joined(at(o.out_shape(0).numel()));
  for (Index r = 0; r < o.shape(0)[0] * o.shape(0)[1]; ++r) {
    std::copy_n(dq.begin() + r * queries, queries, joined.begin() + r * (queries + others));
    std::copy_n(dkv.begin() + r * others, others, joined.begin() + r * (queries + others) + queries);
  }
  o.set(0, joined);
}

KernelRow pass_on_row(const std::shared_ptr<backends::comm::Communicator>& rank) {
  return {&passes::kPassOn, [rank](const Program& program, const Op& op) {
            const Index parts = op.attrs.integer("parts");
            const Index index = op.attrs.integer("index");
            const auto neighbour = [&](Index step) {
              return backends::comm::Message{.group = program::Group::context,
                                             .peer = static_cast<int>((index + step + parts) % parts),
                                             .micro_batch = op.micro_batch};
            };
            return Kernel(
                [rank, next = neighbour(1), last = neighbour(-1),
                 bytes = program.tensor(op.inputs.at(0)).bytes()](const KernelArgs& args) {
                  rank->send(next, args.in[0], bytes);
                  rank->receive(last, args.out[0], bytes);
                },
                {.name = "tests::pass_on"});
          }};
}

}  // namespace

std::vector<KernelRow> ring_kernels(const std::shared_ptr<backends::comm::Communicator>& rank) {
  return {row_of(passes::kTakeKeysValues, take_keys_values),
          row_of(passes::kAttentionBlock, attention_block),
          row_of(passes::kJoinBlocks, join_blocks),
          row_of(passes::kAttentionBlockBackward, attention_block_backward),
          row_of(passes::kJoinGradients, join_gradients),
          pass_on_row(rank)};
}

}  // namespace rooflm::tests
