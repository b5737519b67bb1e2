// What all kernels of updates need: what the host and the norm of the gradients say, and where operands are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "core/halves.h"
#include "program/update.h"

namespace rooflm::backends::cpu::reference {

/// Learning rate and bias corrections of one step, and the factor of gradients: clipping and the inverse loss
/// scale; 0 if the step is skipped.
struct Step {
  double lr, correction1, correction2, clip;
  bool is_skipped;
};

template <class C>
Step read_step(const Operand<C>& hyper, const Operand<C>& norm, const KernelArgs& args, double max_norm,
               bool is_scaled) {
  const C* h = hyper.read(args.in[program::UpdateOperands::kHyper], 0, 4);
  const double inverse_scale = is_scaled ? static_cast<double>(h[3]) : 1;
  Step step{static_cast<double>(h[0]), static_cast<double>(h[1]), static_cast<double>(h[2]), 1,
            inverse_scale == 0};
  if (const void* global_norm = args.in[program::UpdateOperands::kNorm]; global_norm != nullptr) {
    const double ratio = max_norm / (static_cast<double>(*norm.read(global_norm, 0, 1)) + 1e-6);
    step.clip = ratio >= 1 ? 1 : ratio;  // NaN stays NaN
  }
  step.clip *= inverse_scale;
  return step;
}

/// Weights and optimizer state are never converted.
template <class C>
bool state_is_computed(const OpView& v) {
  const program::UpdateOperands at(v.op);
  for (std::size_t i = 0; i < at.count(); ++i) {
    if (v.in(at.weight_in(i)).dtype != kComputed<C>) return false;
    for (std::size_t k = 0; k < at.moments(); ++k) {
      if (v.in(at.moment_in(i, k)).dtype != kComputed<C>) return false;
    }
  }
  return true;
}

/// Calls update(C*) on elements [i, i + n) of a tensor of `count`, in place or joined from halves.
template <class C, class Update>
void update_in_place(void* base, std::optional<core::DType> halves, std::int64_t count, std::int64_t i,
                     std::int64_t n, Update&& update) {
  if (!halves) return update(static_cast<C*>(base) + i);
  auto* upper = static_cast<std::uint16_t*>(base) + i;
  auto* lower = upper + count;
  alignas(64) std::array<C, kPiece> values;  // aligned like all rows: Eigen's rounding depends on alignment
  for (std::int64_t k = 0; k < n; ++k) {
    const float value = core::join_halves({.upper = upper[k], .lower = lower[k]}, *halves);
    values[static_cast<std::size_t>(k)] = static_cast<C>(value);
  }
  update(values.data());
  for (std::int64_t k = 0; k < n; ++k) {
    const float value = static_cast<float>(values[static_cast<std::size_t>(k)]);
    const core::Halves split = core::split_in_halves(value, *halves);
    upper[k] = split.upper;
    lower[k] = split.lower;
  }
}

/// beta of a moving average, and 1 - beta.
template <class C>
struct Average {
  C beta, rest;
  explicit Average(double number) : beta(static_cast<C>(number)), rest(static_cast<C>(1 - number)) {}
};

/// Shared by all updates: where the operands of the tensors are, and how they are stored.
template <class C>
struct Tensors : program::UpdateOperands {
  bool is_scaled;
  double max_norm, decay;
  std::vector<std::int64_t> sizes;
  std::vector<std::optional<core::DType>> halves;
  std::vector<Operand<C>> gradients;
  Operand<C> hyper, norm;
  Operand<C> copy;

  explicit Tensors(const OpView& v)
      : UpdateOperands(v.op),
        is_scaled(v.op.attrs.flag("scaled")),
        max_norm(v.op.attrs.number("max_norm")),
        decay(v.op.attrs.number("weight_decay")),
        hyper(in_operand<C>(v, kHyper, 4)),
        norm(v.has_in(kNorm) ? in_operand<C>(v, kNorm, 1) : Operand<C>()) {
    for (std::size_t i = 0; i < count(); ++i) {
      sizes.push_back(v.in(weight_in(i)).shape.numel());
      halves.push_back(v.in(weight_in(i)).halves);
      gradients.push_back(in_operand<C>(v, gradient_in(i), kPiece));
      const bool is_copied = has_copies() && v.op.outputs.at(copy_out(i)) != program::kNone;
      if (is_copied) copy = out_operand<C>(v, copy_out(i), kPiece);
    }
  }
  [[nodiscard]] Step step(const KernelArgs& args) const {
    return read_step(hyper, norm, args, max_norm, is_scaled);
  }
  [[nodiscard]] C* moment_of(std::size_t tensor, std::size_t k, const KernelArgs& args) const {
    return static_cast<C*>(args.out[moment_out(tensor, k)]);
  }
  [[nodiscard]] const C* gradient(std::size_t tensor, const KernelArgs& args, std::int64_t i,
                                  std::int64_t n) const {
    return gradients[tensor].read(args.in[gradient_in(tensor)], i, n);
  }
  /// Calls update(weights) on elements [i, i + n) of the tensor and writes their copy; halves contain their
  /// own.
  template <class Update>
  void update(std::size_t tensor, const KernelArgs& args, std::int64_t i, std::int64_t n,
              Update&& update) const {
    const bool is_copied = has_copies() && !halves[tensor];
    void* to = is_copied ? args.out[copy_out(tensor)] : nullptr;
    update_in_place<C>(args.out[weight_out(tensor)], halves[tensor], sizes[tensor], i, n, [&](C* p) {
      auto weights = array(p, n);
      update(weights);
      if (to != nullptr) copy.write(to, i, n, [&](C* values) { array(values, n) = weights; });
    });
  }
};

}  // namespace rooflm::backends::cpu::reference
