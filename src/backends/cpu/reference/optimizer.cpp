// The optimizer step: global_norm and its parts, sgd, lion; adamw has its own file. All update in place.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/update_step.h"
#include "core/halves.h"
#include "program/ops.h"
#include "program/update.h"

namespace rooflm::backends::cpu::reference {
namespace {

/// Squares are summed sequentially within pieces of this many elements; the sums of pieces are then added in
/// order.
constexpr std::int64_t kNormPiece = 65536;
/// Partial sums kept at a time, so the norm of a tensor of any size needs constant memory.
constexpr std::int64_t kNormPieces = 1024;

/// The sum of squares of all inputs.
template <class C>
class Squares {
 public:
  explicit Squares(const OpView& v) {
    for (std::size_t i = 0; i < v.op.inputs.size(); ++i) {
      sizes_.push_back(v.in(i).shape.numel());
      gradients_.push_back(in_operand<C>(v, i, kPiece));
    }
  }

  [[nodiscard]] double sum(const KernelArgs& args) const {
    double square = 0;
    for (std::size_t tensor = 0; tensor < sizes_.size(); ++tensor) {
      const std::int64_t count = (sizes_[tensor] + kNormPiece - 1) / kNormPiece;
      for (std::int64_t first = 0; first < count; first += kNormPieces) {
        std::array<double, kNormPieces> totals{};
        for_rows(std::min(kNormPieces, count - first), [&](std::int64_t i) {
          const std::int64_t begin = (first + i) * kNormPiece;
          const std::int64_t end = std::min(sizes_[tensor], begin + kNormPiece);
          double total = 0;
          for (std::int64_t at = begin; at < end; at += kPiece) {
            const std::int64_t n = std::min(kPiece, end - at);
            const C* g = gradients_[tensor].read(args.in[tensor], at, n);
            total += dot(g, g, n);
          }
          totals[static_cast<std::size_t>(i)] = total;
        });
        // In order, including trailing zeros: the same bits for any number of threads.
        for (const double total : totals) square += total;
      }
    }
    return square;
  }

 private:
  std::vector<std::int64_t> sizes_;
  std::vector<Operand<C>> gradients_;
};

}  // namespace

Kernel make_global_norm(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    return [squares = Squares<C>(v), norm = out_operand<C>(v, 0, 1)](const KernelArgs& args) {
      const double square = squares.sum(args);
      norm.write(args.out[0], 0, 1, [&](C* to) { *to = static_cast<C>(std::sqrt(square)); });
    };
  });
}

/// The sum of squares of global_norm, for the part of the gradients that this rank has.
Kernel make_square_sum(const OpView& v) {
  const auto make = [&]<class C>(C) -> Kernel {
    return [squares = Squares<C>(v)](const KernelArgs& args) {
      *static_cast<double*>(args.out[0]) = squares.sum(args);
    };
  };
  const bool is_double = std::any_of(v.op.inputs.begin(), v.op.inputs.end(), [&](program::TensorId id) {
    return v.program.tensor(id).dtype == DType::f64;
  });
  return is_double ? make(double{}) : make(float{});
}

Kernel make_norm_of_squares(const OpView& v) {
  const std::int64_t count = v.in(0).shape.numel();
  return {[count, norm = out_operand<double>(v, 0, 1)](const KernelArgs& args) {
    const auto* squares = static_cast<const double*>(args.in[0]);
    const double square = std::accumulate(squares, squares + count, 0.0);
    norm.write(args.out[0], 0, 1, [&](double* to) { *to = std::sqrt(square); });
  }};
}

/// p -= lr * (clip(g) + weight_decay * p)
Kernel make_sgd(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    if (!state_is_computed<C>(v)) return {};
    return [tensors = Tensors<C>(v)](const KernelArgs& args) {
      const Step step = tensors.step(args);
      if (step.is_skipped) return;
      const C kept = static_cast<C>(1 - step.lr * tensors.decay);
      const C rate = static_cast<C>(step.lr * step.clip);
      for (std::size_t tensor = 0; tensor < tensors.sizes.size(); ++tensor) {
        for_pieces(tensors.sizes[tensor], [&](std::int64_t i, std::int64_t n) {
          const auto gs = array(tensors.gradient(tensor, args, i, n), n);
          tensors.update(tensor, args, i, n, [&](auto& ps) { ps = kept * ps - rate * gs; });
        });
      }
    };
  });
}

/// u = sign(beta1 m + (1 - beta1) g), p -= lr * (u + weight_decay * p), m = beta2 m + (1 - beta2) g
Kernel make_lion(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    if (!state_is_computed<C>(v)) return {};
    const Average<C> sign_of(v.op.attrs.number("beta1"));
    const Average<C> kept_as(v.op.attrs.number("beta2"));
    return [=, tensors = Tensors<C>(v)](const KernelArgs& args) {
      const Step step = tensors.step(args);
      if (step.is_skipped) return;
      const C kept = static_cast<C>(1 - step.lr * tensors.decay);
      const C rate = static_cast<C>(step.lr);
      const C clip = static_cast<C>(step.clip);
      for (std::size_t tensor = 0; tensor < tensors.sizes.size(); ++tensor) {
        C* m = tensors.moment_of(tensor, 0, args);
        for_pieces(tensors.sizes[tensor], [&](std::int64_t i, std::int64_t n) {
          auto ms = array(m + i, n);
          const auto gs = array(tensors.gradient(tensor, args, i, n), n);
          tensors.update(tensor, args, i, n, [&](auto& ps) {
            ps = kept * ps - rate * (sign_of.beta * ms + sign_of.rest * (clip * gs)).sign();
          });
          ms = kept_as.beta * ms + kept_as.rest * (clip * gs);
        });
      }
    };
  });
}

MakerRows optimizer_rows() {
  namespace ops = program::ops;
  return {{&ops::kGlobalNorm, make_global_norm, "reference::global_norm"},
          {&ops::kSquareSum, make_square_sum, "reference::square_sum"},
          {&ops::kNormOfSquares, make_norm_of_squares, "reference::norm_of_squares"},
          {&ops::kSgd, make_sgd, "reference::sgd"},
          {&ops::kLion, make_lion, "reference::lion"}};
}

}  // namespace rooflm::backends::cpu::reference
