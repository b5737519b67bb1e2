// The kernels of NVIDIA GPUs: rows that bind cuBLASLt and the launchers of kernels/ to ops, for fp32 and
// bf16.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "backends/backend.h"
#include "backends/cuda/context.h"
#include "core/dtype.h"
#include "program/program.h"

namespace rooflm::backends::cuda {

/// An op as a kernel maker reads it.
struct OpView {
  const program::Program& program;
  const program::Op& op;
  std::shared_ptr<Context> context;

  [[nodiscard]] bool has_in(std::size_t i) const {
    return i < op.inputs.size() && op.inputs[i] != program::kNone;
  }
  [[nodiscard]] const program::Tensor& in(std::size_t i) const { return program.tensor(op.inputs.at(i)); }
  [[nodiscard]] const program::Tensor& out(std::size_t i) const { return program.tensor(op.outputs.at(i)); }
  [[nodiscard]] std::int64_t integer(std::string_view name) const { return op.attrs.integer(name); }
  [[nodiscard]] float number(std::string_view name) const {
    return static_cast<float>(op.attrs.number(name));
  }
  [[nodiscard]] bool accumulates() const { return op.attrs.flag("accumulate"); }
};

/// Whether all of these inputs / outputs have that dtype; absent inputs count as having it.
inline bool inputs_are(const OpView& v, std::initializer_list<std::size_t> which, core::DType dtype) {
  return std::all_of(which.begin(), which.end(),
                     [&](std::size_t i) { return !v.has_in(i) || v.in(i).dtype == dtype; });
}
inline bool outputs_are(const OpView& v, std::initializer_list<std::size_t> which, core::DType dtype) {
  return std::all_of(which.begin(), which.end(), [&](std::size_t i) { return v.out(i).dtype == dtype; });
}

/// Returns an empty Kernel when it does not handle the op's dtypes.
using Maker = Kernel (*)(const OpView&);

/// One op and the maker of its kernel.
struct MakerRow {
  const program::OpDef* op;
  Maker make;
};

// rows_products.cpp
Kernel make_matmul(const OpView& v);

/// The table: one row per op.
std::span<const MakerRow> kernel_rows();

}  // namespace rooflm::backends::cuda
