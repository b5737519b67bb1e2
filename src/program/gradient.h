// What a gradient rule sees: the op, the gradients that arrived at its outputs, and where to put the new
// ones.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "program/program.h"

namespace rooflm::program {

/// Gradients known so far, by the tensor they belong to.
class GradientMap {
 public:
  /// kNone while there is none.
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

/// Handed to OpDef::gradient. Rules emit backward ops that carry the forward op's scope and micro-batch.
class GradientContext {
 public:
  GradientContext(Program& program, GradientMap& gradients, Op op)
      : program_(&program), gradients_(&gradients), op_(std::move(op)) {}

  [[nodiscard]] const Program& program() const { return *program_; }
  /// The forward op.
  [[nodiscard]] const Op& op() const& { return op_; }
  /// Gives it back.
  [[nodiscard]] Op op() && { return std::move(op_); }
  [[nodiscard]] TensorId input(std::size_t i) const { return i < op_.inputs.size() ? op_.inputs[i] : kNone; }
  [[nodiscard]] TensorId output(std::size_t i) const { return op_.outputs.at(i); }
  /// Gradient of the loss with respect to output `i`, or kNone.
  [[nodiscard]] TensorId gradient(std::size_t i) const;

  /// d(input i) += gradient. Emits an `add` when another use of the input has already contributed.
  void propagate(std::size_t i, TensorId gradient);

  /// Emits an op with one or more new activation gradients as outputs.
  std::vector<TensorId> emit(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
                             const std::vector<core::Shape>& shapes = {});

  /// The tensor that holds d(weight) for input `i`: created on first use; later uses (tied weights, gradient
  /// accumulation) get the same one with `accumulate` set, and their op adds to what is there.
  struct Target {
    TensorId id = kNone;
    bool accumulate = false;
  };
  Target weight_target(std::size_t i);
  /// Emits an op that writes existing tensors: targets of weight gradients, or new ones made with
  /// `new_gradient`.
  void emit_into(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
                 std::vector<TensorId> outputs);
  /// A tensor for d(input i), shaped like the input, to be written by emit_into.
  TensorId new_gradient(std::size_t i);

 private:
  [[nodiscard]] Op make(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs) const;
  Program* program_;
  GradientMap* gradients_;
  Op op_;
};

}  // namespace rooflm::program
