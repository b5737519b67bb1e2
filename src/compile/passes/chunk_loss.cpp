// Chunked loss: head and loss work on a few rows at a time, so the logits [B*T, V] never exist in full.
#include "compile/passes/chunk_loss.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compile/passes/words.h"

namespace rooflm::passes {
namespace {

/// The ops of one head: logits = x W^T, loss, and in a training program their gradients. A head with a part
/// of the vocabulary has none: its gradient depends on the other ranks' results.
struct LossChain {
  std::size_t matmul = 0, loss = 0;
  std::optional<std::size_t> loss_gradient{}, input_gradient{}, weight_gradient{};
};

std::vector<LossChain> find_chains(const Program& p) {
  std::vector<std::size_t> matmuls(p.tensors.size(), p.ops.size());  // by the tensor that they write
  std::unordered_map<TensorId, std::size_t> by_logits;               // index into `chains`
  std::unordered_map<TensorId, std::size_t> by_dlogits;              // likewise
  std::vector<LossChain> chains;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    const Op& op = p.ops[i];
    if (op.is(ops::kMatmul)) {
      matmuls[static_cast<std::size_t>(op.outputs[0])] = i;
      const auto chain = by_dlogits.find(op.inputs[0]);
      if (chain == by_dlogits.end()) continue;
      LossChain& found = chains[chain->second];
      (op.attrs.flag("trans_a") ? found.weight_gradient : found.input_gradient) = i;
    } else if (op.is(ops::kCrossEntropy) && !op.attrs.has("first")) {
      const std::size_t matmul = matmuls[static_cast<std::size_t>(op.inputs[0])];
      if (matmul == p.ops.size()) continue;
      by_logits[op.inputs[0]] = chains.size();
      chains.push_back({.matmul = matmul, .loss = i});
    } else if (op.is(ops::kCrossEntropyBackward)) {
      const auto chain = by_logits.find(op.inputs[0]);
      if (chain == by_logits.end()) continue;
      chains[chain->second].loss_gradient = i;
      by_dlogits[op.outputs[0]] = chain->second;
    }
  }
  return chains;
}

/// Emits the ops of one chunk: rows [first, first + rows) of the chain.
class ChunkWriter {
 public:
  ChunkWriter(Program& p, const LossChain& chain, std::int64_t padding, std::vector<Op>& out)
      : p_(p), chain_(chain), padding_(padding), out_(out) {}

  void write(std::int64_t first, std::int64_t rows) {
    const Op matmul = p_.ops[chain_.matmul];
    const std::int64_t vocab = matmul.attrs.integer("n");
    const std::int64_t width = matmul.attrs.integer("k");
    const std::int64_t stride = (vocab - 1) / padding_ * padding_ + padding_;
    const TensorId logits = p_.add_tensor({.name = "logits", .shape = {rows, stride}});

    Op op = matmul;
    op.attrs.set("m", rows);
    if (stride != vocab) op.attrs.set("c_stride", stride);
    op.input_offset = {first * width, 0};
    op.outputs = {logits};
    out_.push_back(op);

    op = p_.ops[chain_.loss];
    op.attrs.set("rows", rows);
    op.inputs[0] = logits;
    op.input_offset = {0, first};
    op.output_offset = {first, first};
    out_.push_back(op);
    if (chain_.loss_gradient) write_gradient(logits, stride != vocab, first, rows, width);
  }

 private:
  void write_gradient(TensorId logits, bool is_padded, std::int64_t first, std::int64_t rows,
                      std::int64_t width) {
    const std::int64_t stride = p_.shape(logits)[-1];
    Op op = p_.ops[*chain_.loss_gradient];
    const TensorId dlogits =
        p_.add_tensor({.name = "d_logits", .shape = p_.shape(logits), .role = Role::activation_gradient});
    op.attrs.set("rows", rows);
    op.inputs[0] = logits;
    op.input_offset = {0, first, first};
    op.outputs = {dlogits};
    out_.push_back(op);

    op = p_.ops[chain_.input_gradient.value()];
    op.attrs.set("m", rows);
    if (is_padded) op.attrs.set("a_stride", stride);
    op.inputs[0] = dlogits;
    op.output_offset = {first * width};
    out_.push_back(op);

    if (!chain_.weight_gradient) return;  // of a frozen head
    op = p_.ops[*chain_.weight_gradient];
    op.attrs.set("k", rows);
    if (is_padded) op.attrs.set("a_stride", stride);
    op.inputs[0] = dlogits;
    op.input_offset = {0, first * width};
    if (first > 0) op.attrs.set("accumulate", true);
    out_.push_back(op);
  }

  Program& p_;
  const LossChain& chain_;
  std::int64_t padding_;
  std::vector<Op>& out_;
};

/// Ops to insert before the op `before`: those of a list up to `end`, from the end of the previous insertion.
struct Insertion {
  std::size_t before = 0, end = 0;
};

/// Removes the ops `replaced` and inserts `added`. Insertions are in order, each before a replaced op. Works
/// in place: a second list would be new memory, which is slower.
void replace(std::vector<Op>& all, const std::set<std::size_t>& replaced, std::vector<Op>& added,
             std::vector<Insertion>& insertions) {
  auto next = insertions.begin();
  std::size_t kept = *replaced.begin();
  for (std::size_t i = kept; i < all.size(); ++i) {
    if (!replaced.contains(i)) {
      all[kept++] = std::move(all[i]);
    } else if (next != insertions.end() && next->before == i) {
      next++->before = kept;
    }
  }
  all.resize(kept + added.size());
  auto to = all.end();
  auto from = all.begin() + static_cast<std::ptrdiff_t>(kept);
  auto from_added = added.end();
  for (auto insertion = insertions.rbegin(); insertion != insertions.rend(); ++insertion) {
    const auto place = all.begin() + static_cast<std::ptrdiff_t>(insertion->before);
    to = std::move_backward(place, from, to);
    from = place;
    const std::size_t begin = insertion + 1 == insertions.rend() ? 0 : (insertion + 1)->end;
    const auto first = added.begin() + static_cast<std::ptrdiff_t>(begin);
    to = std::move_backward(first, from_added, to);
    from_added = first;
  }
}

}  // namespace

std::int64_t chunk_rows(std::int64_t vocab, std::int64_t max_bytes) {
  return std::max(kChunkUnit, max_bytes / (4 * vocab) / kChunkUnit * kChunkUnit);
}

void chunk_loss(Program& program, std::int64_t rows, std::int64_t padding) {
  std::map<std::size_t, LossChain> chains;
  std::set<std::size_t> replaced;
  for (const LossChain& chain : find_chains(program)) {
    chains[chain.matmul] = chain;
    replaced.insert({chain.matmul, chain.loss});
    for (const auto& index : {chain.loss_gradient, chain.input_gradient, chain.weight_gradient}) {
      if (index) replaced.insert(*index);
    }
  }
  if (chains.empty()) return;
  std::vector<Op> chunks;
  std::vector<Insertion> insertions;
  for (const auto& [matmul, chain] : chains) {
    const std::int64_t all = program.ops[matmul].attrs.integer("m");
    ChunkWriter writer(program, chain, padding, chunks);
    for (std::int64_t first = 0; first < all; first += rows) writer.write(first, std::min(rows, all - first));
    insertions.push_back({.before = matmul, .end = chunks.size()});
  }
  replace(program.ops, replaced, chunks, insertions);
}

}  // namespace rooflm::passes
