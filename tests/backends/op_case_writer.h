// Writing one case of op_cases.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "program/builder.h"
#include "tests/backends/op_cases.h"

namespace rooflm::tests {

inline double number(std::int64_t x) { return static_cast<double>(x); }

/// Writes one case.
class CaseWriter {
 public:
  explicit CaseWriter(std::string name) { case_.name = std::move(name); }

  program::TensorId activation(const core::Shape& shape) {
    return add("x", shape, program::Role::activation);
  }
  program::TensorId weight(const core::Shape& shape) { return add("w", shape, program::Role::weight, true); }
  program::TensorId ids(const core::Shape& shape, std::int64_t limit) {
    const program::TensorId id = case_.program.add_tensor(
        {.name = "ids", .shape = shape, .dtype = core::DType::i32, .role = program::Role::input});
    case_.id_limits[id] = limit;
    return id;
  }
  program::TensorId add(const char* name, const core::Shape& shape, program::Role role,
                        bool full_precision = false) {
    return case_.program.add_tensor(
        {.name = name, .shape = shape, .role = role, .full_precision = full_precision});
  }
  program::TensorId copy(const core::Shape& shape, core::DType dtype = core::DType::bf16) {
    return case_.program.add_tensor({.name = "copy", .shape = shape, .dtype = dtype});
  }
  [[nodiscard]] const core::Shape& shape(program::TensorId id) const { return case_.program.shape(id); }
  void fix(program::TensorId id, std::vector<double> values) { case_.values[id] = std::move(values); }

  std::vector<program::TensorId> op(const program::OpDef& def, std::vector<program::TensorId> inputs,
                                    program::Attributes attrs = {}) {
    program::Builder b(case_.program);
    return b.ops(def, std::move(inputs), std::move(attrs), std::string(def.name));
  }
  void op_into(const program::OpDef& def, std::vector<program::TensorId> inputs, program::Attributes attrs,
               std::vector<program::TensorId> outputs) {
    program::Builder b(case_.program);
    b.op_into(def, std::move(inputs), std::move(attrs), std::move(outputs));
  }
  /// The case, whose loss depends on these outputs.
  Case done(std::vector<program::TensorId> outputs = {}) {
    case_.outputs = std::move(outputs);
    return std::move(case_);
  }

 private:
  Case case_;
};

/// op_cases_training.cpp: what stands at the beginning and the end of a model, and the optimizer.
void add_token_cases(std::vector<Case>& cases, const Sizes& s);
void add_loss_scale_cases(std::vector<Case>& cases, const Sizes& s);
void add_optimizer_cases(std::vector<Case>& cases, const Sizes& s, bool clipped, bool copies);

/// op_cases_attention.cpp.
void add_attention_cases(std::vector<Case>& cases, const Sizes& s);

/// op_cases_cache.cpp.
void add_cache_cases(std::vector<Case>& cases, const Sizes& s);

/// op_cases_experts.cpp.
void add_expert_cases(std::vector<Case>& cases, const Sizes& s);

/// op_cases_rows.cpp.
void add_row_cases(std::vector<Case>& cases, const Sizes& s);

/// op_cases_fp8.cpp.
void add_fp8_cases(std::vector<Case>& cases, const Sizes& s);

}  // namespace rooflm::tests
