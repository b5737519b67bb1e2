// Names the operands of an op that updates weights.
//
// Inputs: hyper, norm or kNone, then weight, gradient and moments of each tensor. Outputs: weight and moments
// of each tensor; then, with the attribute `copies`, a copy of each weight in the compute dtype (kNone where
// a weight has none).
#pragma once

#include <cstddef>
#include <vector>

#include "program/program.h"

namespace rooflm::program {

/// Whether the op updates weights.
inline bool is_update(const Op& op) { return op.def->update.has_value(); }

/// Indices of the operands in the inputs and outputs of an update op, for tensors 0 <= i < count().
class UpdateOperands {
 public:
  static constexpr std::size_t kHyper = 0;
  static constexpr std::size_t kNorm = 1;

  explicit UpdateOperands(const Op& op)
      : moments_(op.def->update.value().moments),
        count_((op.inputs.size() - kShared) / (2 + moments_)),
        has_copies_(op.attrs.flag("copies")) {}

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t moments() const { return moments_; }
  [[nodiscard]] bool has_copies() const { return has_copies_; }

  [[nodiscard]] std::size_t weight_in(std::size_t i) const { return kShared + (2 + moments_) * i; }
  [[nodiscard]] std::size_t gradient_in(std::size_t i) const { return weight_in(i) + 1; }
  [[nodiscard]] std::size_t moment_in(std::size_t i, std::size_t k) const { return weight_in(i) + 2 + k; }
  [[nodiscard]] std::size_t weight_out(std::size_t i) const { return (1 + moments_) * i; }
  [[nodiscard]] std::size_t moment_out(std::size_t i, std::size_t k) const { return weight_out(i) + 1 + k; }
  /// Only if has_copies().
  [[nodiscard]] std::size_t copy_out(std::size_t i) const { return weight_out(count_) + i; }

 private:
  static constexpr std::size_t kShared = 2;
  std::size_t moments_, count_;
  bool has_copies_;
};

/// The tensors that an update reads and writes. Borrows the op.
class UpdateView : public UpdateOperands {
 public:
  explicit UpdateView(const Op& op) : UpdateOperands(op), op_(&op) {}
  [[nodiscard]] TensorId hyper() const { return op_->inputs[kHyper]; }
  /// kNone without gradient clipping.
  [[nodiscard]] TensorId norm() const { return op_->inputs[kNorm]; }
  [[nodiscard]] TensorId weight(std::size_t i) const { return op_->inputs[weight_in(i)]; }
  [[nodiscard]] TensorId gradient(std::size_t i) const { return op_->inputs[gradient_in(i)]; }
  [[nodiscard]] TensorId moment(std::size_t i, std::size_t k) const { return op_->inputs[moment_in(i, k)]; }
  /// kNone if the weight has none.
  [[nodiscard]] TensorId copy(std::size_t i) const {
    return has_copies() ? op_->outputs[copy_out(i)] : kNone;
  }

 private:
  const Op* op_;
};

/// Merges two updates with the same definition and attributes into `to`, whose tensors come first.
void append_update(Op& to, const Op& more);
/// The op that updates only tensor i of `op`.
Op single_update(const Op& op, std::size_t i);

}  // namespace rooflm::program
