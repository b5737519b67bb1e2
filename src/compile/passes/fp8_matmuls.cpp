// The matmuls of layers read fp8.
#include "compile/passes/fp8_matmuls.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile/passes/no_index.h"
#include "compile/passes/op_like.h"
#include "compile/passes/words.h"
#include "core/error.h"
#include "core/scope.h"
#include "program/fp8.h"

namespace rooflm::passes {
namespace {

using program::Fp8Operand;
using program::kFp8Operands;
using program::kFp8Slot;

constexpr std::string_view kState = "fp8_scales";
/// fp8 GEMMs and casts read 16 bytes at a time in either layout, so extents are multiples of it.
constexpr std::int64_t kUnit = 16;

bool is_scalable_matmul(const Program& p, const Op& op) {
  const bool is_matmul = op.is(ops::kMatmul) || op.is(ops::kMatmulGelu) || op.is(ops::kMatmulGeluBackward);
  if (!is_matmul || op.attrs.integer("batch") != 1 || !core::Scope(op.scope).layer()) return false;
  const bool is_whole = op.input_offset.empty() && op.output_offset.empty();
  const bool is_bf16 =
      p.tensor(op.inputs[0]).dtype == DType::bf16 && p.tensor(op.inputs[1]).dtype == DType::bf16;
  const bool fits = std::ranges::all_of(
      std::array{"m", "n", "k"}, [&](const char* extent) { return op.attrs.integer(extent) % kUnit == 0; });
  return is_whole && is_bf16 && fits;
}

/// Whether operand `i` is stored contiguous along k.
bool is_along_k(const Op& op, std::size_t i) {
  return i == 0 ? !op.attrs.flag("trans_a") : op.attrs.flag("trans_b");
}

/// The role of operand `i` of a layer's matmul. Forward: x w. Backward: dy w for the input gradient; dy and x
/// for the weight gradient, the only one whose first operand is transposed.
Fp8Operand operand_of(const Program& p, const Op& op, std::size_t i) {
  const bool is_forward = op.phase == Phase::forward || op.recomputed;
  if (i == 1 && (is_forward || !op.attrs.flag("trans_a"))) return Fp8Operand::weight;
  const bool is_gradient = !is_forward && p.tensor(op.inputs[i]).role == Role::activation_gradient;
  return is_gradient ? Fp8Operand::gradient : Fp8Operand::activation;
}

/// An op that can be fused with the cast of its output `made`.
struct CastProducer {
  const program::OpDef* producer;
  const program::OpDef* fused;
  std::ptrdiff_t made = 0;
  bool is_norm = false;

  [[nodiscard]] bool takes(const Op& cast) const {
    const std::int64_t cols = cast.attrs.integer("cols");
    if (is_norm) return cols <= program::kFp8NormCols && !cast.attrs.flag("e5m2");
    return producer != &ops::kSwiGluBackward || cols % (2 * kUnit) == 0;
  }
};

/// The entry for the op, or nullptr.
const CastProducer* cast_producer(const Op& op) {
  static const std::array kProducers{
      CastProducer{&ops::kSwiGlu, &ops::kSwiGluFp8},
      CastProducer{&ops::kSwiGluBackward, &ops::kSwiGluBackwardFp8},
      CastProducer{&ops::kLayerNorm, &ops::kLayerNormFp8, 0, true},
      CastProducer{&ops::kAddLayerNorm, &ops::kAddLayerNormFp8, 1, true},
      CastProducer{&ops::kRmsNorm, &ops::kRmsNormFp8, 0, true},
      CastProducer{&ops::kAddRmsNorm, &ops::kAddRmsNormFp8, 1, true},
  };
  // Norms that cast have all of their weights.
  if (std::ranges::find(op.inputs, program::kNone) != op.inputs.end()) return nullptr;
  const auto* const found =
      std::ranges::find_if(kProducers, [&](const CastProducer& each) { return op.is(*each.producer); });
  return found == kProducers.end() ? nullptr : found;
}

class Caster {
 public:
  Caster(Program& step, const Fp8Options& options)
      : step_(&step),
        options_(&options),
        layouts_(step.tensors.size()),
        other_readers_(step.tensors.size()),
        writer_(step.tensors.size(), kNoIndex) {
    for (const Op& op : step.ops) {
      const bool is_scaled = is_scalable_matmul(step, op);
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (op.inputs[i] == program::kNone) continue;
        if (is_scaled && i < 2) {
          layouts_of(op.inputs[i]).add(is_along_k(op, i));
        } else {
          other_readers_[static_cast<std::size_t>(op.inputs[i])] = true;
        }
      }
    }
  }

  void run() {
    std::vector<Op> rewritten;
    rewritten.reserve(step_->ops.size());
    for (Op& op : step_->ops) {
      // Copies of a tensor are stale once an op writes it.
      for (const TensorId id : op.outputs) copies_.erase(id);
      if (is_scalable_matmul(*step_, op)) scale(op, rewritten);
      for (const TensorId id : op.outputs) {
        if (id != program::kNone) writer_[static_cast<std::size_t>(id)] = rewritten.size();
      }
      rewritten.push_back(std::move(op));
    }
    step_->ops = std::move(rewritten);
    if (state_ != program::kNone) {
      step_->tensor(state_).shape = {static_cast<std::int64_t>(slots_.size()) * kFp8Operands, kFp8Slot};
    }
  }

 private:
  /// The layouts of a tensor that matmuls read.
  struct Layouts {
    bool as_stored = false, transposed = false;
    void add(bool along_k) { (along_k ? as_stored : transposed) = true; }
  };
  struct Copies {
    TensorId as_stored = program::kNone, transposed = program::kNone;
    TensorId slots = program::kNone;
    std::int64_t offset = 0;  ///< offset of the tensor's slot
    bool is_of_backward = false;
  };

  Layouts& layouts_of(TensorId id) { return layouts_.at(static_cast<std::size_t>(id)); }

  void scale(Op& op, std::vector<Op>& rewritten) {
    constexpr std::size_t kSlots = 3;  // index of the slots among the inputs
    std::array<Copies, 2> factors;
    for (const std::size_t i : {0U, 1U}) factors.at(i) = copies_of(op, i, rewritten);
    for (const std::size_t i : {0U, 1U}) {
      op.inputs[i] = reads_as_stored(op, i) ? factors.at(i).as_stored : factors.at(i).transposed;
    }
    op.inputs.resize(kSlots, program::kNone);
    op.input_offset.assign(kSlots, 0);
    for (const Copies& factor : factors) {
      op.inputs.push_back(factor.slots);
      op.input_offset.push_back(factor.offset);
    }
    op.attrs.set("trans_a", false);
    op.attrs.set("trans_b", true);
    const bool is_forward = op.phase == Phase::forward || op.recomputed;
    op.attrs.set("fast_sums", options_->fast_sums == Fp8FastSums::all ||
                                  (is_forward && options_->fast_sums == Fp8FastSums::forward));
  }

  const Copies& copies_of(const Op& op, std::size_t i, std::vector<Op>& rewritten) {
    const TensorId id = op.inputs[i];
    Copies& copies = copies_[id];
    TensorId& wanted = reads_as_stored(op, i) ? copies.as_stored : copies.transposed;
    const Fp8Operand operand = operand_of(*step_, op, i);
    if (wanted != program::kNone && !is_cast_again(op, operand, copies)) return copies;
    Layouts layouts = layouts_of(id);
    if (options_->any_layout) {
      layouts = {.as_stored = true};
    } else if (is_recast(operand)) {
      layouts = {};
      layouts.add(is_along_k(op, i));
    }
    const Copies made = cast(op, i, operand, layouts, rewritten);
    copies.slots = made.slots;
    copies.offset = made.offset;
    copies.is_of_backward = op.phase == program::Phase::backward;
    if (layouts.as_stored) copies.as_stored = made.as_stored;
    if (layouts.transposed) copies.transposed = made.transposed;
    return copies;
  }

  [[nodiscard]] bool reads_as_stored(const Op& op, std::size_t i) const {
    return options_->any_layout || is_along_k(op, i);
  }

  /// Whether each layout is cast from the 16-bit tensor where it is read.
  [[nodiscard]] bool is_recast(Fp8Operand operand) const {
    return (operand == Fp8Operand::weight && options_->weights == Fp8Weights::recast) ||
           (operand == Fp8Operand::activation && options_->recast_activations);
  }

  /// Whether a recomputed matmul reads a copy that the forward pass made of a tensor which is kept in 16
  /// bits.
  [[nodiscard]] bool is_cast_again(const Op& op, Fp8Operand operand, const Copies& copies) const {
    return operand == Fp8Operand::activation && options_->recast_activations && op.recomputed &&
           !copies.is_of_backward;
  }

  /// Appends the op that casts operand `i` of a matmul.
  Copies cast(const Op& op, std::size_t i, Fp8Operand operand, Layouts layouts, std::vector<Op>& rewritten) {
    const TensorId id = op.inputs[i];
    const bool is_delayed = options_->scaling == Fp8Scaling::delayed;
    const std::int64_t along = op.attrs.integer("k");
    const std::int64_t across = op.attrs.integer(i == 0 ? "m" : "n");
    const std::int64_t rows = is_along_k(op, i) ? across : along;
    const std::int64_t cols = is_along_k(op, i) ? along : across;
    const bool is_e5m2 = options_->gradients == Fp8Gradients::e5m2 && operand == Fp8Operand::gradient;

    const DType dtype = is_e5m2 ? DType::f8_e5m2 : DType::f8;
    Copies copies = make_copies(id, operand, dtype, layouts, rows, cols);
    if (is_delayed) {
      copies.slots = state();
      copies.offset = slot_of(op.scope, operand);
    } else {
      copies.slots = step_->add_tensor({.name = step_->tensor(id).name + ".fp8_scale",
                                        .shape = {kFp8Slot},
                                        .role = Role::workspace,
                                        .full_precision = true});
    }
    Op cast = op_like(op, ops::kFp8Cast, {id}, {copies.as_stored, copies.transposed, copies.slots});
    if (is_delayed) cast.inputs.push_back(copies.slots);
    if (is_delayed) {
      cast.input_offset = {0, copies.offset};
      cast.output_offset = {0, 0, copies.offset};
    }
    cast.attrs = {{"rows", rows}, {"cols", cols}, {"e5m2", is_e5m2}, {"current", !is_delayed}};
    if (!options_->fuse || !join_producer(cast, rewritten)) rewritten.push_back(std::move(cast));
    return copies;
  }

  /// If only matmuls read the input of the cast and an elementwise or row-wise op produces it, fuses the cast
  /// into that op. Returns false if it does not.
  bool join_producer(const Op& cast, std::vector<Op>& rewritten) const {
    const auto source = static_cast<std::size_t>(cast.inputs[0]);
    if (other_readers_[source] || writer_[source] == kNoIndex) return false;
    Op& producer = rewritten[writer_[source]];
    const CastProducer* found = cast_producer(producer);
    if (found == nullptr || !found->takes(cast) || !producer.input_offset.empty()) return false;
    producer.def = found->fused;
    for (const auto& [name, value] : cast.attrs.entries()) producer.attrs.set(name, value);
    producer.inputs.insert(producer.inputs.end(), cast.inputs.begin() + 1, cast.inputs.end());
    producer.outputs.erase(producer.outputs.begin() + found->made);
    producer.outputs.insert(producer.outputs.begin(), cast.outputs.begin(), cast.outputs.end());
    if (!cast.input_offset.empty()) {  // the slot's offset
      producer.input_offset.assign(producer.inputs.size(), 0);
      producer.input_offset.back() = cast.input_offset.back();
      producer.output_offset.assign(producer.outputs.size(), 0);
      producer.output_offset.at(cast.outputs.size() - 1) = cast.output_offset.back();
    }
    return true;
  }

  Copies make_copies(TensorId id, Fp8Operand operand, DType dtype, Layouts layouts, std::int64_t rows,
                     std::int64_t cols) {
    constexpr std::array kRoles{Role::activation, Role::workspace, Role::activation_gradient};
    const auto add = [&](const char* suffix, const core::Shape& shape) {
      return step_->add_tensor({.name = step_->tensor(id).name + suffix,
                                .shape = shape,
                                .dtype = dtype,
                                .role = kRoles.at(static_cast<std::size_t>(operand))});
    };
    Copies copies;
    if (layouts.as_stored) copies.as_stored = add(".fp8", {rows, cols});
    if (layouts.transposed) copies.transposed = add(".fp8_transposed", {cols, rows});
    return copies;
  }

  TensorId state() {
    if (state_ == program::kNone) {
      state_ = step_->add_tensor({.name = std::string(kState),
                                  .shape = {kFp8Operands, kFp8Slot},
                                  .role = Role::optimizer_state,
                                  .full_precision = true});
    }
    return state_;
  }

  /// Offset of the slot of an operand of the matmul with that scope.
  std::int64_t slot_of(const std::string& scope, Fp8Operand operand) {
    const auto matmul = slots_.try_emplace(scope, static_cast<std::int64_t>(slots_.size())).first->second;
    return (matmul * kFp8Operands + static_cast<std::int64_t>(operand)) * kFp8Slot;
  }

  Program* step_;
  const Fp8Options* options_;
  std::vector<Layouts> layouts_;     ///< by tensor
  std::vector<bool> other_readers_;  ///< by tensor: whether ops other than fp8 matmuls read it
  /// By tensor: index in the rewritten program of the last op that writes it.
  std::vector<std::size_t> writer_;
  std::map<TensorId, Copies> copies_;
  std::map<std::string, std::int64_t> slots_;  ///< by matmul scope, in order of appearance
  TensorId state_ = program::kNone;
};

}  // namespace

void fp8_matmuls(Program& step, const Fp8Options& options) { Caster(step, options).run(); }

void append_fp8_scales(Program& step, const Fp8Options& options) {
  const TensorId state = step.find(kState);
  if (state == program::kNone) return;
  Op scales;
  scales.def = &ops::kFp8Scales;
  scales.inputs = {state};
  scales.outputs = {state};
  scales.attrs = {{"e5m2_gradients", options.gradients == Fp8Gradients::e5m2}};
  scales.phase = Phase::optimizer;
  scales.scope = "optimizer";
  step.ops.push_back(std::move(scales));
}

}  // namespace rooflm::passes
