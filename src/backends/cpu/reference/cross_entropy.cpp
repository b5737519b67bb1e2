// cross_entropy: losses[r] = lse[r] - logits[r, targets[r]]; its gradient; mean.
// A row with a negative target is ignored: loss 0, gradient 0.
#include <array>
#include <cmath>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/token_ids.h"
#include "program/loss_scale.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

/// log sum_i exp(x_i)
template <class C>
double log_sum_exp(const C* x, std::int64_t count) {
  const C greatest = array(x, count).maxCoeff();
  double total = 0;
  alignas(64) std::array<C, kPiece> e;
  for (std::int64_t i = 0; i < count; i += kPiece) {
    const std::int64_t n = std::min(kPiece, count - i);
    array(e.data(), n) = (array(x + i, n) - greatest).exp();
    total += sum(e.data(), n);
  }
  return static_cast<double>(greatest) + std::log(total);
}

}  // namespace

Kernel make_cross_entropy(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t rows = v.integer("rows");
    const std::int64_t valid = v.integer("valid");
    const std::int64_t cols = v.in(0).shape[-1];
    return [=, logits = in_operand<C>(v, 0, valid), losses = out_operand<C>(v, 0, 1),
            lse = out_operand<C>(v, 1, 1)](const KernelArgs& args) {
      const auto* targets = static_cast<const std::int32_t*>(args.in[1]);
      check_ids(targets, rows, valid, "target", true);
      for_rows(rows, [&](std::int64_t r) {
        const C* x = logits.read(args.in[0], r * cols, valid);
        const double total = log_sum_exp(x, valid);
        const double loss = targets[r] < 0 ? 0 : total - static_cast<double>(x[targets[r]]);
        losses.write(args.out[0], r, 1, [&](C* to) { *to = static_cast<C>(loss); });
        lse.write(args.out[1], r, 1, [&](C* to) { *to = static_cast<C>(total); });
      });
    };
  });
}

/// dlogits = (exp(logits - lse) - onehot(targets)) * grad_scale * the loss scale; 0 in the padding.
Kernel make_cross_entropy_backward(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t rows = v.integer("rows");
    const std::int64_t valid = v.integer("valid");
    const std::int64_t cols = v.in(0).shape[-1];
    const double grad_scale = v.op.attrs.number("grad_scale");
    const bool is_scaled = v.has_in(3);
    return [=, logits = in_operand<C>(v, 0, valid), lse = in_operand<C>(v, 2, 1),
            dlogits = out_operand<C>(v, 0, cols)](const KernelArgs& args) {
      const auto* targets = static_cast<const std::int32_t*>(args.in[1]);
      check_ids(targets, rows, valid, "target", true);
      const double loss_scale = is_scaled ? program::loss_scale_of(static_cast<const float*>(args.in[3])) : 1;
      const C scale = static_cast<C>(grad_scale * loss_scale);
      for_rows(rows, [&](std::int64_t r) {
        const auto x = array(logits.read(args.in[0], r * cols, valid), valid);
        const C total = *lse.read(args.in[2], r, 1);
        dlogits.write(args.out[0], r * cols, cols, [&](C* to) {
          array(to + valid, cols - valid).setZero();
          if (targets[r] < 0) {
            array(to, valid).setZero();
          } else {
            array(to, valid) = scale * (x - total).exp();
            to[targets[r]] -= scale;
          }
        });
      });
    };
  });
}

/// loss (+)= weight * sum of losses
Kernel make_mean(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(0).shape.numel();
    const double weight = v.op.attrs.number("weight");
    return [=, accumulate = v.accumulates(), losses = in_operand<C>(v, 0, kPiece),
            loss = out_operand<C>(v, 0, 1)](const KernelArgs& args) {
      double total = 0;
      for (std::int64_t i = 0; i < n; i += kPiece) {
        const std::int64_t count = std::min(kPiece, n - i);
        total += sum(losses.read(args.in[0], i, count), count);
      }
      const double before = accumulate ? static_cast<double>(*loss.read(args.out[0], 0, 1)) : 0;
      loss.write(args.out[0], 0, 1, [&](C* to) { *to = static_cast<C>(before + weight * total); });
    };
  });
}

MakerRows cross_entropy_rows() {
  namespace ops = program::ops;
  return {{&ops::kCrossEntropy, make_cross_entropy, "reference::cross_entropy"},
          {&ops::kCrossEntropyBackward, make_cross_entropy_backward, "reference::cross_entropy_backward"},
          {&ops::kMean, make_mean, "reference::mean"}};
}

}  // namespace rooflm::backends::cpu::reference
