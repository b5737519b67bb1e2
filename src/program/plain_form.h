// Expands a fused op into the equivalent plain ops.
#pragma once

#include <cstddef>
#include <vector>

#include "program/program.h"

namespace rooflm::program {

/// Passed to OpDef::plain, which emits plain ops on the operands of the fused op. They allocate nothing: each
/// writes an output of the fused op, which later plain ops may read or overwrite in place. They run in the
/// order of emission, also when output 0 of the fused op shares storage with OpDef::in_place_input.
class PlainForm {
 public:
  PlainForm(const Program& program, const Op& op) : program_(&program), op_(&op) {}

  [[nodiscard]] const Program& program() const { return *program_; }
  /// The fused op.
  [[nodiscard]] const Op& op() const { return *op_; }
  [[nodiscard]] bool has_input(std::size_t i) const {
    return i < op_->inputs.size() && op_->inputs[i] != kNone;
  }
  /// An operand of the fused op, from `offset` elements on.
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

/// The plain ops that compute the same as `op` of `program`, on the same tensors; empty if `op` is plain
/// itself.
std::vector<Op> plain_ops(const Program& program, const Op& op);

}  // namespace rooflm::program
