// An op as the maker of its kernel sees it, and the kernel-table rows of backends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "core/dtype.h"
#include "program/program.h"

namespace rooflm::backends {

/// `Context`: what the kernels of one backend share, such as scratch memory and a stream.
template <class Context>
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
  /// Whether all of these inputs / outputs have that dtype; absent ones count as having it.
  [[nodiscard]] bool inputs_are(std::initializer_list<std::size_t> which, core::DType dtype) const {
    return std::all_of(which.begin(), which.end(),
                       [&](std::size_t i) { return !has_in(i) || in(i).dtype == dtype; });
  }
  [[nodiscard]] bool outputs_are(std::initializer_list<std::size_t> which, core::DType dtype) const {
    return std::all_of(which.begin(), which.end(), [&](std::size_t i) { return out(i).dtype == dtype; });
  }
  /// The same for outputs that may be absent, such as gradients of absent weights.
  [[nodiscard]] bool gradients_are(std::initializer_list<std::size_t> which, core::DType dtype) const {
    return std::all_of(which.begin(), which.end(), [&](std::size_t i) {
      return op.outputs.at(i) == program::kNone || out(i).dtype == dtype;
    });
  }
};

/// A 16-bit float.
inline bool is_half(core::DType dtype) { return dtype == core::DType::bf16 || dtype == core::DType::f16; }
/// Whether activations can be stored in the dtype.
inline bool is_storage(core::DType dtype) { return dtype == core::DType::f32 || is_half(dtype); }

/// Number of rows, where the last dimension is the row.
inline std::int64_t rows_of(const program::Tensor& tensor) { return tensor.shape.numel() / tensor.shape[-1]; }

/// An op and the maker of its kernel. The maker returns an empty Kernel if it does not support the op's
/// dtypes or shapes; then the next row for the op is tried. `name`: the function that runs, without its
/// dtype.
template <class Context>
struct MakerRow {
  const program::OpDef* op;
  Kernel (*make)(const OpView<Context>&);
  std::string_view name;
};

/// Concatenates the rows of several files (cmake/kernel_table.cmake generates their list).
template <class Context>
using MakerRows = std::vector<MakerRow<Context>>;

/// The dtype that an op computes in: that of its first floating-point operand.
core::DType compute_dtype(const program::Program& program, const program::Op& op);

/// "NAME<dtype>" with compute_dtype, or "NAME<functor, dtype>" for "NAME<functor>".
std::string kernel_name(std::string_view name, const program::Program& program, const program::Op& op);

/// The kernel that `row` makes of the op, named after the row if the maker gave no name.
template <class Context>
Kernel make_named(const MakerRow<Context>& row, const OpView<Context>& view) {
  Kernel kernel = row.make(view);
  if (kernel && kernel.info.name.empty()) kernel.info.name = kernel_name(row.name, view.program, view.op);
  return kernel;
}

/// The variant of a matmul kernel: batch, m, n, k and dtypes, as "12x 128x128x64 bf16 -> f32".
std::string matmul_variant(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                           core::DType factors, core::DType result);

/// The KernelInfo of a kernel that runs several in sequence.
KernelInfo combined(std::span<const Kernel> parts);

}  // namespace rooflm::backends
