// Products q k^T to scores of attention (program/scores.h), for the reference kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "program/scores.h"

namespace rooflm::backends::cpu::reference {

/// The scores of one op. Without caps and ALiBi they stay products, and `factor` multiplies them in softmax.
template <class C>
struct ScoreRows {
  program::Scores rule{};
  std::int64_t heads = 0;

  [[nodiscard]] bool is_scaled_only() const { return rule.cap == 0 && !rule.alibi && rule.temperature == 0; }
  [[nodiscard]] C factor() const { return is_scaled_only() ? static_cast<C>(rule.scale) : C(1); }

  /// Query t of head h and keys first, first + 1, .. of which x are the products.
  void apply(std::int64_t h, std::int64_t t, std::int64_t first, std::int64_t count, C* x) const {
    if (is_scaled_only()) return;
    auto row = array(x, count);
    row *= static_cast<C>(rule.scale * rule.heat(t));
    if (rule.cap > 0) row = static_cast<C>(rule.cap) * (row / static_cast<C>(rule.cap)).tanh();
    if (!rule.alibi) return;
    const C slope = static_cast<C>(rule.slope(h, heads));
    for (std::int64_t j = 0; j < count; ++j) x[j] -= slope * static_cast<C>(t - first - j);
  }
  /// Multiplies gradients of the scores of query t by the derivative at the products x.
  void apply_derivative(std::int64_t t, const C* x, std::int64_t count, C* ds) const {
    const double scale = rule.scale * rule.heat(t);
    if (rule.cap == 0) return (void)(array(ds, count) *= static_cast<C>(scale));
    const C inside = static_cast<C>(scale / rule.cap);
    array(ds, count) *= static_cast<C>(scale) * (C(1) - (inside * array(x, count)).tanh().square());
  }
};

/// One sink per head, or none.
template <class C>
struct Sinks {
  Operand<C> values{};
  std::size_t index = 0;  ///< of the op's inputs; 0: none

  /// Input `index` of the op, if it is there.
  static Sinks of(const OpView& v, std::size_t index) {
    if (!v.has_in(index)) return {};
    return {in_operand<C>(v, index, 1), index};
  }
  explicit operator bool() const { return index > 0; }
  [[nodiscard]] C of_head(const KernelArgs& args, std::int64_t h) const {
    return *values.read(args.in[index], h, 1);
  }
};

/// Writes the gradients of sinks [H] to output 1: sums over the batch of parts [B, H].
inline void write_sink_gradients(const double* parts, std::int64_t batch, std::int64_t heads,
                                 core::DType dtype, bool accumulate, void* to) {
  for (std::int64_t h = 0; h < heads; ++h) {
    double total = 0;
    if (accumulate) core::load_elements(dtype, to, h, &total, 1);
    for (std::int64_t b = 0; b < batch; ++b) total += parts[b * heads + h];
    core::store_elements(&total, dtype, to, h, 1);
  }
}

}  // namespace rooflm::backends::cpu::reference
