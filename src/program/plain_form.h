// A fused op as the plain ops that it equals.
#pragma once

#include <cstddef>
#include <vector>

#include "program/program.h"

namespace rooflm::program {

/// Handed to OpDef::plain, which emits plain ops on the operands of the fused op. They need no memory of
/// their own: each writes an output of the fused op, which later ones may read, or write once more in the
/// place of what they read. They run in the order in which they are emitted, also where output 0 of the fused
/// op takes the place of OpDef::in_place_input.
class PlainForm {
 public:
  PlainForm(const Program& program, const Op& op) : program_(&program), op_(&op) {}

  [[nodiscard]] const Program& program() const { return *program_; }
  /// The fused op.
  [[nodiscard]] const Op& op() const { return *op_; }
  [[nodiscard]] bool has_input(std::size_t i) const {
    return i < op_->inputs.size() && op_->inputs[i] != kNone;
  }
  /// Operands of the fused op, where they begin.
  struct Operand {
    TensorId id = kNone;
    std::int64_t offset = 0;  ///< in elements
  };
  [[nodiscard]] Operand input(std::size_t i) const;
  [[nodiscard]] Operand output(std::size_t i) const;

  /// Emits an op with the fused op's phase, scope and micro-batch, on the lane `compute`.
  void emit(const OpDef& def, const std::vector<Operand>& inputs, Attributes attrs,
            const std::vector<Operand>& outputs);
  /// Emits `op` on the lane `compute`.
  void emit(Op op);

  [[nodiscard]] const std::vector<Op>& ops() const { return ops_; }

 private:
  const Program* program_;
  const Op* op_;
  std::vector<Op> ops_;
};

/// The plain ops that `op` of `program` equals, on the same tensors; none when it is plain itself.
std::vector<Op> plain_ops(const Program& program, const Op& op);

}  // namespace rooflm::program
