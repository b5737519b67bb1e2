// Kernels of what ranks with a part of the vocabulary, or of each sequence, do.
#include "tests/engines/part_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "compile/passes/part_ops.h"
#include "tests/engines/part_operands.h"

namespace rooflm::tests {
namespace {

using backends::KernelRow;
using Index = std::int64_t;

// The vocabulary.

void embed(const Operands& o) {
  const Values table = o.in(1);
  const Index rows = o.shape(0).numel();
  const Index width = o.shape(1)[1];
  Values x(at(rows * width));
  for (Index r = 0; r < rows; ++r) {
    const Index row = o.ids(0)[r] - o.integer("first");
    if (row < 0 || row >= o.shape(1)[0]) continue;
    std::copy_n(table.begin() + row * width, width, x.begin() + r * width);
  }
  o.set(0, x);
}

void embed_backward(const Operands& o) {
  const Values dx = o.in(1);
  const Index rows = o.shape(0).numel();
  const Index width = o.shape(1)[-1];
  Values table = o.flag("accumulate") ? o.out(0) : Values(at(o.out_shape(0).numel()));
  for (Index r = 0; r < rows; ++r) {
    const Index row = o.ids(0)[r] - o.integer("first");
    if (row < 0 || row >= o.integer("vocab")) continue;
    for (Index c = 0; c < width; ++c) table[at(row * width + c)] += dx[at(r * width + c)];
  }
  o.set(0, table);
}

void cross_entropy(const Operands& o) {
  const Values logits = o.in(0);
  const Index columns = o.shape(0)[-1];
  Values losses(at(o.integer("rows"))), lse(losses.size(), kNothing);
  for (Index r = 0; r < o.integer("rows"); ++r) {
    const double* row = &logits[at(r * columns)];
    const Index own = o.ids(1)[r] - o.integer("first");
    if (own >= 0 && own < o.integer("valid")) losses[at(r)] = row[own];
    if (o.integer("valid") == 0) continue;
    const double greatest = *std::max_element(row, row + o.integer("valid"));
    double sum = 0;
    for (Index c = 0; c < o.integer("valid"); ++c) sum += std::exp(row[c] - greatest);
    lse[at(r)] = greatest + std::log(sum);
  }
  o.set(0, losses);
  o.set(1, lse);
}

void cross_entropy_backward(const Operands& o) {
  const Values logits = o.in(0);
  const Values lse = o.in(2);
  const Index columns = o.shape(0)[-1];
  Values gradient(logits.size());
  for (Index r = 0; r < o.integer("rows"); ++r) {
    const Index own = o.ids(1)[r] - o.integer("first");
    for (Index c = 0; c < o.integer("valid"); ++c) {
      const double p = std::exp(logits[at(r * columns + c)] - lse[at(r)]);
      gradient[at(r * columns + c)] = o.number("grad_scale") * (p - (c == own ? 1 : 0));
    }
  }
  o.set(0, gradient);
}

void join_losses(const Operands& o) {
  Values losses = o.in(0);
  const Values all = o.in(2);
  Values lse(losses.size());
  for (std::size_t r = 0; r < losses.size(); ++r) {
    double greatest = kNothing;
    for (std::size_t i = r; i < all.size(); i += losses.size()) greatest = std::max(greatest, all[i]);
    double sum = 0;
    for (std::size_t i = r; i < all.size(); i += losses.size()) sum += std::exp(all[i] - greatest);
    lse[r] = greatest + std::log(sum);
    losses[r] = lse[r] - losses[r];
  }
  o.set(0, losses);
  o.set(1, lse);
}

}  // namespace

std::vector<KernelRow> part_kernels() {
  return {row_of(passes::kEmbeddingOfPart, embed), row_of(passes::kEmbeddingBackwardOfPart, embed_backward),
          row_of(passes::kCrossEntropyOfPart, cross_entropy),
          row_of(passes::kCrossEntropyBackwardOfPart, cross_entropy_backward),
          row_of(passes::kJoinLosses, join_losses)};
}

}  // namespace rooflm::tests
