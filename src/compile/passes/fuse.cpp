// Operator fusion: the ops of the fused engine instead of the model's single operations.
#include "compile/passes/fuse.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "compile/passes/no_index.h"
#include "compile/passes/words.h"
#include "program/update.h"

namespace rooflm::passes {
namespace {

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

/// Calls join(previous, op) for each op and the op before it. If it returns true, `previous` has become the
/// fused op and `op` is removed.
template <class Join>
void join_neighbours(std::vector<Op>& ops, Join&& join) {
  std::size_t kept = 0;
  for (Op& op : ops) {
    if (kept > 0 && join(ops[kept - 1], op)) continue;
    if (&ops[kept] != &op) ops[kept] = std::move(op);
    ++kept;
  }
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(kept), ops.end());
}

/// Fuses `second`, which reads output 0 of `first`, into `first`. Returns false if they do not fuse.
/// `only_reader`: nothing else reads that output, so it need not be stored.
bool fuse_pair(Op& first, const Op& second, bool only_reader) {
  const TensorId link = first.outputs[0];
  if (first.is(ops::kMatmul) && second.is(ops::kBiasAdd) && first.inputs.size() == 2 && only_reader) {
    first.inputs.push_back(second.inputs[1]);
    first.outputs = second.outputs;
    return true;
  }
  if (first.is(ops::kEmbedding) && second.is(ops::kAddPositions) && only_reader) {
    first.def = &ops::kEmbeddingPositions;
    if (second.attrs.has("offset")) first.attrs.set("offset", second.attrs.integer("offset"));
    first.inputs.insert(first.inputs.end(), second.inputs.begin() + 1, second.inputs.end());
    first.outputs = second.outputs;
    return true;
  }
  const bool norm = second.is(ops::kLayerNorm) || second.is(ops::kRmsNorm);
  if (first.is(ops::kAdd) && norm && second.inputs[0] == link && first.phase == second.phase) {
    first.def = second.is(ops::kLayerNorm) ? &ops::kAddLayerNorm : &ops::kAddRmsNorm;
    first.attrs = second.attrs;
    first.inputs.insert(first.inputs.end(), second.inputs.begin() + 1, second.inputs.end());
    first.outputs.insert(first.outputs.end(), second.outputs.begin(), second.outputs.end());
    first.scope = second.scope;
    return true;
  }
  const bool norm_backward = (first.is(ops::kLayerNormBackward) && first.inputs.size() == 5) ||
                             (first.is(ops::kRmsNormBackward) && first.inputs.size() == 4);
  if (norm_backward && second.is(ops::kAdd) && only_reader) {
    first.inputs.push_back(second.inputs[0] == link ? second.inputs[1] : second.inputs[0]);
    first.outputs[0] = second.outputs[0];
    return true;
  }
  return false;
}

/// Fuses each op with a neighbour that reads its first output.
void fuse_neighbours(Program& p) {
  const std::vector<int> readers = count_readers(p);
  join_neighbours(p.ops, [&](Op& previous, const Op& op) {
    if (previous.outputs.empty()) return false;
    const TensorId link = previous.outputs[0];
    const bool reads = std::find(op.inputs.begin(), op.inputs.end(), link) != op.inputs.end();
    return reads && !op.is(ops::kCast) &&
           fuse_pair(previous, op, readers[static_cast<std::size_t>(link)] == 1);
  });
}

/// Whether the op is a single (batch 1) matmul of whole tensors.
bool is_single_matmul(const Op& op) {
  return op.is(ops::kMatmul) && op.attrs.integer("batch") == 1 && !op.attrs.flag("accumulate") &&
         op.input_offset.empty() && op.output_offset.empty();
}

/// Fuses GELU, or its gradient, into the epilogue of the matmul that produces its input. Between a matmul and
/// GELU's gradient there is a weight gradient.
class GeluFusion {
 public:
  GeluFusion(Program& p, const FuseOptions& options)
      : program_(&p),
        options_(options),
        readers_(count_readers(p)),
        writer_(p.tensors.size(), kNoIndex),
        recomputes_(std::any_of(p.ops.begin(), p.ops.end(), [](const Op& op) { return op.recomputed; })) {}

  void run() {
    rewritten_.reserve(program_->ops.size());
    for (Op& op : program_->ops) {
      const bool joins = (op.is(ops::kGelu) && options_.gelu_in_epilogue) ||
                         (op.is(ops::kGeluBackward) && options_.gelu_gradient_in_epilogue);
      if (joins && join(op)) continue;
      for (const TensorId id : op.outputs) {
        if (id != program::kNone) writer_[static_cast<std::size_t>(id)] = rewritten_.size();
      }
      rewritten_.push_back(std::move(op));
    }
    program_->ops = std::move(rewritten_);
  }

 private:
  bool join(const Op& op) {
    const TensorId link = op.inputs[0];
    const std::size_t place = writer_[static_cast<std::size_t>(link)];
    if (place == kNoIndex || !is_single_matmul(rewritten_[place])) return false;
    Op& matmul = rewritten_[place];
    const bool is_kept = readers_[static_cast<std::size_t>(link)] > 1;
    const bool has_bias = matmul.inputs.size() > 2;
    if (op.is(ops::kGelu)) {
      if (!is_kept || !has_bias || recomputes_) return false;
      matmul.def = &ops::kMatmulGelu;
      matmul.outputs = {op.outputs[0], link};
    } else {
      const std::size_t x = writer_[static_cast<std::size_t>(op.inputs[1])];
      const bool has_x = x == kNoIndex || x < place;
      if (is_kept || has_bias || !has_x) return false;
      matmul.def = &ops::kMatmulGeluBackward;
      matmul.inputs.push_back(op.inputs[1]);
      matmul.outputs = op.outputs;
    }
    writer_[static_cast<std::size_t>(op.outputs[0])] = place;
    return true;
  }

  Program* program_;
  FuseOptions options_;
  std::vector<int> readers_;
  std::vector<std::size_t> writer_;  ///< by tensor: index in rewritten_ of the op that writes it
  bool recomputes_;
  std::vector<Op> rewritten_;
};

/// Fuses the gradient of a bias with the op that writes what it sums.
void fuse_bias_gradients(Program& p) {
  std::vector<std::size_t> writer(p.tensors.size(), kNoIndex);  // by tensor: index of the op whose dx it is
  const auto join = [&](const Op& bias) {
    const std::size_t place = writer[static_cast<std::size_t>(bias.inputs[0])];
    if (place == kNoIndex || !bias.input_offset.empty() || !bias.output_offset.empty()) return false;
    Op& op = p.ops[place];
    const bool accumulates = bias.attrs.flag("accumulate");
    const bool has_own = op.is(ops::kLayerNormBackward);  // other gradients, of its weights
    if (op.attrs.flag("bias_gradient") || (has_own && op.attrs.flag("accumulate") != accumulates))
      return false;
    op.attrs.set("bias_gradient", true);
    op.attrs.set("accumulate", accumulates);
    op.outputs.push_back(bias.outputs[0]);
    return true;
  };
  std::size_t kept = 0;
  for (Op& op : p.ops) {
    if (op.is(ops::kBiasBackward) && join(op)) continue;
    const bool joins = (op.is(ops::kGeluBackward) || op.is(ops::kLayerNormBackward)) &&
                       op.input_offset.empty() && op.output_offset.empty();
    if (joins) writer[static_cast<std::size_t>(op.outputs[0])] = kept;
    if (&p.ops[kept] != &op) p.ops[kept] = std::move(op);
    ++kept;
  }
  p.ops.erase(p.ops.begin() + static_cast<std::ptrdiff_t>(kept), p.ops.end());
}

/// Fuses cross_entropy with its gradient right after it; the fused op has the phase of the gradient.
void fuse_losses(Program& p) {
  constexpr std::size_t kLossScale = 3;  // index of the state among the gradient's inputs, with loss scaling
  join_neighbours(p.ops, [](Op& previous, const Op& op) {
    const bool follows = previous.is(ops::kCrossEntropy) && op.is(ops::kCrossEntropyBackward) &&
                         op.inputs[0] == previous.inputs[0] && op.inputs[2] == previous.outputs[1];
    if (!follows) return false;
    const Op loss = std::exchange(previous, op);
    Op& both = previous;
    both.def = &ops::kCrossEntropyWithGradient;
    both.inputs = loss.inputs;
    if (op.inputs.size() > kLossScale) both.inputs.push_back(op.inputs[kLossScale]);
    both.input_offset = loss.input_offset;
    both.outputs.insert(both.outputs.end(), loss.outputs.begin(), loss.outputs.end());
    if (!loss.output_offset.empty()) both.output_offset = {0, loss.output_offset[0], loss.output_offset[1]};
    return true;
  });
}

/// Merges updates with equal attributes into one op at the place of the first, which is after all gradients;
/// those that read something else (passes/matrix_optimizer.h) only where they read the same tensor.
void merge_updates(Program& p) {
  std::vector<std::size_t> merged;  // indices of merged ops
  const auto read_alike = [&](const Op& a, const Op& b) {
    const TensorId of_a = program::UpdateView(a).gradient(0);
    const TensorId of_b = program::UpdateView(b).gradient(0);
    return of_a == of_b || (p.tensor(of_a).role == Role::gradient && p.tensor(of_b).role == Role::gradient);
  };
  const auto is_merged = [&](const Op& op) {
    if (!program::is_update(op)) return false;
    const auto same = std::find_if(merged.begin(), merged.end(), [&](std::size_t i) {
      return p.ops[i].def == op.def && p.ops[i].attrs == op.attrs && read_alike(p.ops[i], op);
    });
    if (same != merged.end()) program::append_update(p.ops[*same], op);
    return same != merged.end();
  };
  std::size_t kept = 0;
  for (Op& op : p.ops) {
    if (is_merged(op)) continue;
    if (program::is_update(op)) merged.push_back(kept);
    if (&p.ops[kept] != &op) p.ops[kept] = std::move(op);
    ++kept;
  }
  p.ops.erase(p.ops.begin() + static_cast<std::ptrdiff_t>(kept), p.ops.end());
}

/// Makes weight copies persistent: cast once at setup, then kept up to date by the optimizer.
void hoist_casts(Program& p) {
  const auto is_cast = [&](const Op& op) {
    return op.is(ops::kCast) && p.tensor(op.inputs[0]).role == Role::weight;
  };
  if (std::none_of(p.ops.begin(), p.ops.end(), is_cast)) return;
  std::stable_partition(p.ops.begin(), p.ops.end(), is_cast);
  std::vector<TensorId> copy_of(p.tensors.size(), program::kNone);
  bool has_copies = false;
  for (Op& op : p.ops) {
    if (is_cast(op)) {
      op.phase = Phase::setup;
      p.tensor(op.outputs[0]).role = Role::weight;
      copy_of[static_cast<std::size_t>(op.inputs[0])] = op.outputs[0];
      has_copies = true;
    }
  }
  for (Op& op : p.ops) {
    if (!program::is_update(op) || !has_copies) continue;
    const program::UpdateView update(op);
    for (std::size_t i = 0; i < update.count(); ++i) {
      op.outputs.push_back(copy_of[static_cast<std::size_t>(update.weight(i))]);
    }
    op.attrs.set("copies", true);
  }
}

}  // namespace

void fuse(Program& program, const FuseOptions& options) {
  const bool clips = std::any_of(program.ops.begin(), program.ops.end(),
                                 [](const Op& op) { return op.is(ops::kGlobalNorm); });
  if (clips || options.merge_updates) merge_updates(program);
  hoist_casts(program);
  fuse_losses(program);
  fuse_neighbours(program);
  if (options.gelu_in_epilogue || options.gelu_gradient_in_epilogue) GeluFusion(program, options).run();
  if (options.bias_in_gradients) fuse_bias_gradients(program);
}

}  // namespace rooflm::passes
