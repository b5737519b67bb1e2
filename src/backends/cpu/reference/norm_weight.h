// Weights and biases of norms, which may be absent. For the files of this folder.
#pragma once

#include <algorithm>
#include <memory>

#include "backends/cpu/reference/operand.h"

namespace rooflm::backends::cpu::reference {

/// Input `i` of an op, fp [cols], or if it is absent that many times `otherwise`.
template <class C>
class NormWeight {
 public:
  NormWeight(const OpView& v, std::size_t i, std::int64_t cols, C otherwise) {
    if (v.has_in(i)) {
      stored_ = in_operand<C>(v, i, cols);
    } else {
      absent_ = aligned_array<C>(cols);
      std::fill_n(absent_.get(), cols, otherwise);
    }
  }
  const C* read(const void* base, std::int64_t cols) const {
    return absent_ != nullptr ? absent_.get() : stored_.read(base, 0, cols);
  }

 private:
  Operand<C> stored_;
  std::shared_ptr<C[]> absent_;
};

/// Output `i`, the gradient of a weight that may be absent.
template <class C>
Operand<C> gradient_operand(const OpView& v, std::size_t i) {
  return v.op.outputs.at(i) == program::kNone ? Operand<C>() : out_operand<C>(v, i, kColumns);
}

}  // namespace rooflm::backends::cpu::reference
