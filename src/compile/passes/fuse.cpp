// Fewer, fatter ops: what the fused engine runs instead of the model's single operations.
#include "compile/passes/fuse.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/ops.h"
#include "program/update.h"

namespace rooflm::passes {
namespace {

namespace ops = program::ops;
using program::Op;
using program::Phase;
using program::Program;
using program::Role;
using program::TensorId;

/// How often each tensor is read.
std::vector<int> count_readers(const Program& p) {
  std::vector<int> readers(p.tensors.size(), 0);
  for (const Op& op : p.ops) {
    for (const TensorId id : op.inputs) {
      if (id != program::kNone) ++readers[static_cast<std::size_t>(id)];
    }
  }
  return readers;
}

/// One op in the place of `first` and the `second` that reads its output 0; nullopt when they do not fuse.
/// `only_reader`: nobody else reads that output, so it need not exist afterwards.
std::optional<Op> fused(const Op& first, const Op& second, bool only_reader) {
  const TensorId link = first.outputs[0];
  Op op = first;
  if (first.is(ops::kMatmul) && second.is(ops::kBiasAdd) && first.inputs.size() == 2 && only_reader) {
    op.inputs.push_back(second.inputs[1]);
    op.outputs = second.outputs;
    return op;
  }
  if (first.is(ops::kEmbedding) && second.is(ops::kAddPositions) && only_reader) {
    op.def = &ops::kEmbeddingPositions;
    op.inputs.push_back(second.inputs[1]);
    op.outputs = second.outputs;
    return op;
  }
  const bool norm = second.is(ops::kLayerNorm) || second.is(ops::kRmsNorm);
  if (first.is(ops::kAdd) && norm && second.inputs[0] == link && first.phase == second.phase) {
    op.def = second.is(ops::kLayerNorm) ? &ops::kAddLayerNorm : &ops::kAddRmsNorm;
    op.attrs = second.attrs;
    op.inputs.insert(op.inputs.end(), second.inputs.begin() + 1, second.inputs.end());
    op.outputs.insert(op.outputs.end(), second.outputs.begin(), second.outputs.end());
    op.scope = second.scope;
    return op;
  }
  const bool norm_backward = (first.is(ops::kLayerNormBackward) && first.inputs.size() == 5) ||
                             (first.is(ops::kRmsNormBackward) && first.inputs.size() == 4);
  if (norm_backward && second.is(ops::kAdd) && only_reader) {
    op.inputs.push_back(second.inputs[0] == link ? second.inputs[1] : second.inputs[0]);
    op.outputs[0] = second.outputs[0];
    return op;
  }
  return std::nullopt;
}

/// Fuses each op with a neighbour that reads its first output.
void fuse_neighbours(Program& p) {
  const std::vector<int> readers = count_readers(p);
  std::vector<Op> rewritten;
  for (const Op& op : p.ops) {
    if (!rewritten.empty() && op.def != &ops::kCast) {
      const Op& previous = rewritten.back();
      const TensorId link = previous.outputs[0];
      const bool reads = std::find(op.inputs.begin(), op.inputs.end(), link) != op.inputs.end();
      if (reads) {
        if (auto both = fused(previous, op, readers[static_cast<std::size_t>(link)] == 1)) {
          rewritten.back() = std::move(*both);
          continue;
        }
      }
    }
    rewritten.push_back(op);
  }
  p.ops = std::move(rewritten);
}

/// Whether the op is one product of whole tensors.
bool is_single_product(const Op& op) {
  return op.is(ops::kMatmul) && op.attrs.integer("batch") == 1 && !op.attrs.flag("accumulate") &&
         op.input_offset.empty() && op.output_offset.empty();
}

/// GELU or its gradient joins the product whose result it takes. Between a product and GELU's gradient lies a
/// weight gradient.
class GeluFusion {
 public:
  explicit GeluFusion(Program& p)
      : program_(&p),
        readers_(count_readers(p)),
        recomputes_(std::any_of(p.ops.begin(), p.ops.end(), [](const Op& op) { return op.recomputed; })) {}

  void run() {
    for (const Op& op : program_->ops) {
      const bool is_gelu = op.is(ops::kGelu) || op.is(ops::kGeluBackward);
      if (is_gelu && join(op)) continue;
      for (const TensorId id : op.outputs) writer_[id] = rewritten_.size();
      rewritten_.push_back(op);
    }
    program_->ops = std::move(rewritten_);
  }

 private:
  bool join(const Op& op) {
    const TensorId link = op.inputs[0];
    const auto place = writer_.find(link);
    if (place == writer_.end() || !is_single_product(rewritten_[place->second])) return false;
    Op& product = rewritten_[place->second];
    const bool is_kept = readers_[static_cast<std::size_t>(link)] > 1;
    const bool has_bias = product.inputs.size() > 2;
    if (op.is(ops::kGelu)) {
      if (!is_kept || !has_bias || recomputes_) return false;
      product.def = &ops::kMatmulGelu;
      product.outputs = {op.outputs[0], link};
    } else {
      const auto x = writer_.find(op.inputs[1]);
      const bool has_x = x == writer_.end() || x->second < place->second;
      if (is_kept || has_bias || !has_x) return false;
      product.def = &ops::kMatmulGeluBackward;
      product.inputs.push_back(op.inputs[1]);
      product.outputs = op.outputs;
    }
    writer_[op.outputs[0]] = place->second;
    return true;
  }

  Program* program_;
  std::vector<int> readers_;
  bool recomputes_;
  std::unordered_map<TensorId, std::size_t> writer_;  ///< of each tensor, in rewritten_
  std::vector<Op> rewritten_;
};

/// cross_entropy and, right after it, its gradient become one op, in the phase of the gradient.
void fuse_losses(Program& p) {
  constexpr std::size_t kLossScale = 3;  // of the gradient's inputs, where the loss is scaled
  std::vector<Op> rewritten;
  for (const Op& op : p.ops) {
    const bool follows = !rewritten.empty() && rewritten.back().is(ops::kCrossEntropy) &&
                         op.is(ops::kCrossEntropyBackward) && op.inputs[0] == rewritten.back().inputs[0] &&
                         op.inputs[2] == rewritten.back().outputs[1];
    if (!follows) {
      rewritten.push_back(op);
      continue;
    }
    const Op loss = std::move(rewritten.back());
    Op& both = rewritten.back() = op;
    both.def = &ops::kCrossEntropyWithGradient;
    both.inputs = loss.inputs;
    if (op.inputs.size() > kLossScale) both.inputs.push_back(op.inputs[kLossScale]);
    both.input_offset = loss.input_offset;
    both.outputs.insert(both.outputs.end(), loss.outputs.begin(), loss.outputs.end());
    if (!loss.output_offset.empty()) both.output_offset = {0, loss.output_offset[0], loss.output_offset[1]};
  }
  p.ops = std::move(rewritten);
}

/// Joins updates with equal attributes into one op; the first one's place, which is after all gradients.
void merge_updates(Program& p) {
  std::vector<Op> rewritten;
  std::vector<std::size_t> merged;  // places in `rewritten`
  for (const Op& op : p.ops) {
    if (!program::is_update(op)) {
      rewritten.push_back(op);
      continue;
    }
    const auto same = std::find_if(merged.begin(), merged.end(), [&](std::size_t i) {
      return rewritten[i].def == op.def && rewritten[i].attrs == op.attrs;
    });
    if (same == merged.end()) {
      merged.push_back(rewritten.size());
      rewritten.push_back(op);
      continue;
    }
    program::append_update(rewritten[*same], op);
  }
  p.ops = std::move(rewritten);
}

/// Weight copies become persistent: made once at setup, kept up to date by the optimizer.
void hoist_casts(Program& p) {
  std::unordered_map<TensorId, TensorId> copy_of;
  std::stable_partition(p.ops.begin(), p.ops.end(), [](const Op& op) { return op.is(ops::kCast); });
  for (Op& op : p.ops) {
    if (op.is(ops::kCast) && p.tensor(op.inputs[0]).role == Role::weight) {
      op.phase = Phase::setup;
      p.tensor(op.outputs[0]).role = Role::weight;
      copy_of[op.inputs[0]] = op.outputs[0];
    }
  }
  for (Op& op : p.ops) {
    if (!program::is_update(op) || copy_of.empty()) continue;
    const program::UpdateView update(op);
    for (std::size_t i = 0; i < update.count(); ++i) {
      const auto found = copy_of.find(update.weight(i));
      op.outputs.push_back(found == copy_of.end() ? program::kNone : found->second);
    }
    op.attrs.set("copies", true);
  }
}

}  // namespace

void fuse(Program& program, const FuseOptions& options) {
  const bool clips = std::any_of(program.ops.begin(), program.ops.end(),
                                 [](const Op& op) { return op.is(ops::kGlobalNorm); });
  if (clips) merge_updates(program);
  hoist_casts(program);
  fuse_losses(program);
  fuse_neighbours(program);
  if (options.gelu_in_products) GeluFusion(program).run();
}

}  // namespace rooflm::passes
