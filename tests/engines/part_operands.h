// What kernels of tests read and write: whole tensors, as doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "core/elements.h"
#include "program/program.h"

namespace rooflm::tests {

using Values = std::vector<double>;

inline constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// What an op works on.
struct Signature {
  program::Attributes attrs{};
  std::vector<program::Tensor> in{}, out{};
  Signature(const program::Program& program, const program::Op& op) : attrs(op.attrs) {
    for (const program::TensorId id : op.inputs) in.push_back(program.tensor(id));
    for (const program::TensorId id : op.outputs) out.push_back(program.tensor(id));
  }
};

/// The operands of one call, as doubles.
class Operands {
 public:
  Operands(const Signature& op, const backends::KernelArgs& args) : op_(&op), args_(&args) {}

  [[nodiscard]] Values in(std::size_t i) const { return values(op_->in.at(i), args_->in[i]); }
  [[nodiscard]] Values out(std::size_t i) const { return values(op_->out.at(i), args_->out[i]); }
  [[nodiscard]] const std::int32_t* ids(std::size_t i) const {
    return static_cast<const std::int32_t*>(args_->in[i]);
  }
  void set(std::size_t i, const Values& values) const {
    const program::Tensor& tensor = op_->out.at(i);
    core::store_elements(values.data(), tensor.dtype, args_->out[i], 0, tensor.shape.numel());
  }
  [[nodiscard]] const core::Shape& shape(std::size_t input) const { return op_->in.at(input).shape; }
  [[nodiscard]] const core::Shape& out_shape(std::size_t i) const { return op_->out.at(i).shape; }
  [[nodiscard]] std::size_t inputs() const { return op_->in.size(); }
  [[nodiscard]] std::int64_t integer(const char* name) const { return op_->attrs.integer(name); }
  [[nodiscard]] double number(const char* name) const { return op_->attrs.number(name); }
  [[nodiscard]] bool flag(const char* name) const { return op_->attrs.flag(name); }

 private:
  static Values values(const program::Tensor& tensor, const void* from) {
    Values values(static_cast<std::size_t>(tensor.shape.numel()));
    core::load_elements(tensor.dtype, from, 0, values.data(), tensor.shape.numel());
    return values;
  }

  const Signature* op_;
  const backends::KernelArgs* args_;
};

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The row of an op that `run` computes.
inline backends::KernelRow row_of(const program::OpDef& def, void (*run)(const Operands&)) {
  return {&def, [run](const program::Program& program, const program::Op& op) {
            return backends::Kernel([run, own = Signature(program, op)](
                                        const backends::KernelArgs& args) { run(Operands(own, args)); },
                                    {.name = "tests::" + std::string(op.def->name)});
          }};
}

}  // namespace rooflm::tests
