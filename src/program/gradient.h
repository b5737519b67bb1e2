// What a gradient rule works with: the forward op, the gradients of its outputs, and where to put the new
// ones.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "program/program.h"

namespace rooflm::program {

/// The gradients known so far, by the tensor they belong to.
class GradientMap {
 public:
  /// kNone if there is none yet.
  [[nodiscard]] TensorId of(TensorId tensor) const {
    const auto index = static_cast<std::size_t>(tensor);
    return index < gradients_.size() ? gradients_[index] : kNone;
  }
  void set(TensorId tensor, TensorId gradient) {
    const auto index = static_cast<std::size_t>(tensor);
    if (index >= gradients_.size()) gradients_.resize(index + 1, kNone);
    gradients_[index] = gradient;
  }

 private:
  std::vector<TensorId> gradients_;
};

/// Passed to OpDef::gradient. Backward ops get the forward op's scope and micro-batch.
class GradientContext {
 public:
  GradientContext(Program& program, GradientMap& gradients, Op op)
      : program_(&program), gradients_(&gradients), op_(std::move(op)) {}

  [[nodiscard]] const Program& program() const { return *program_; }
  /// The forward op.
  [[nodiscard]] const Op& op() const& { return op_; }
  [[nodiscard]] Op op() && { return std::move(op_); }
  [[nodiscard]] TensorId input(std::size_t i) const { return i < op_.inputs.size() ? op_.inputs[i] : kNone; }
  [[nodiscard]] TensorId output(std::size_t i) const { return op_.outputs.at(i); }
  /// Gradient of the loss with respect to output `i`, or kNone.
  [[nodiscard]] TensorId gradient(std::size_t i) const;

  /// d(input i) += gradient. Emits an `add` if another use of the input has already contributed.
  void propagate(std::size_t i, TensorId gradient);

  /// Emits an op whose outputs are new activation gradients.
  std::vector<TensorId> emit(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
                             const std::vector<core::Shape>& shapes = {});

  /// The tensor for d(weight) of input `i`, created on first use. Later uses (tied weights, micro-batches)
  /// get the same tensor with `accumulate` set: their op must add to it.
  struct Target {
    TensorId id = kNone;
    bool accumulate = false;
  };
  Target weight_target(std::size_t i);
  /// Emits an op that writes existing tensors: weight-gradient targets, or tensors made by `new_gradient`.
  void emit_into(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
                 std::vector<TensorId> outputs);
  /// A new tensor for d(input i), shaped like the input, to be written by emit_into.
  TensorId new_gradient(std::size_t i);

 private:
  [[nodiscard]] Op make(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs) const;
  Program* program_;
  GradientMap* gradients_;
  Op op_;
};

}  // namespace rooflm::program
