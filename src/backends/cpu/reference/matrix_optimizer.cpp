// What optimizers of whole matrices need beside matmuls and sgd: momentum, normalize, matrix_polynomial.
#include <cmath>
#include <numeric>
#include <vector>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/update_step.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {

Kernel make_momentum(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    constexpr std::size_t kFirst = 2;  // gradients and moments follow hyper and norm
    using Operands = program::UpdateOperands;
    const auto& attrs = v.op.attrs;
    const std::size_t count = (v.op.inputs.size() - kFirst) / 2;
    std::vector<Operand<C>> gradients;
    for (std::size_t i = 0; i < count; ++i) {
      gradients.push_back(in_operand<C>(v, kFirst + 2 * i, kPiece));
      if (v.in(kFirst + 2 * i + 1).dtype != kComputed<C>) return {};
    }
    const C beta = static_cast<C>(attrs.number("beta"));
    const C rest = static_cast<C>(1 - attrs.number("beta"));
    const double max_norm = attrs.number("max_norm");
    const bool is_squared = attrs.flag("squared");
    const bool is_nesterov = attrs.flag("nesterov");
    const bool has_norm = v.has_in(Operands::kNorm);
    return [=, n = v.in(kFirst).shape.numel(), hyper = in_operand<C>(v, Operands::kHyper, 4),
            norm = has_norm ? in_operand<C>(v, Operands::kNorm, 1) : Operand<C>(),
            direction = out_operand<C>(v, 0, kPiece)](const KernelArgs& args) {
      const double clip = read_step(hyper, norm, args, max_norm, false).clip;
      const C factor = static_cast<C>(is_squared ? clip * clip : clip);
      for (std::size_t tensor = 0; tensor < count; ++tensor) {
        C* m = static_cast<C*>(args.out[1 + tensor]);
        const std::int64_t first = static_cast<std::int64_t>(tensor) * n;
        for_pieces(n, [&](std::int64_t i, std::int64_t length) {
          auto ms = array(m + i, length);
          const auto gs = array(gradients[tensor].read(args.in[kFirst + 2 * tensor], i, length), length);
          ms = beta * ms + rest * (factor * gs);
          direction.write(args.out[0], first + i, length, [&](C* to) {
            if (is_nesterov) {
              array(to, length) = beta * ms + rest * (factor * gs);
            } else {
              array(to, length) = ms;
            }
          });
        });
      }
    };
  });
}

Kernel make_normalize(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const core::Shape& shape = v.in(0).shape;
    const std::int64_t n = shape[-2] * shape[-1];  // of one matrix
    const std::int64_t count = shape.numel() / n;
    const std::int64_t pieces = (n + kPiece - 1) / kPiece;
    const double size = v.op.attrs.number("size");
    const double eps = v.op.attrs.number("eps");
    return [=, x = in_operand<C>(v, 0, kPiece), y = out_operand<C>(v, 0, kPiece),
            squares = std::vector<double>(static_cast<std::size_t>(count * pieces))](
               const KernelArgs& args) mutable {
      // Sums of pieces are added in order: the same bits for any number of threads.
      for_rows(count * pieces, [&](std::int64_t i) {
        const std::int64_t at = i % pieces * kPiece;
        const std::int64_t length = std::min(kPiece, n - at);
        const C* xs = x.read(args.in[0], i / pieces * n + at, length);
        squares[static_cast<std::size_t>(i)] = dot(xs, xs, length);
      });
      for_rows(count * pieces, [&](std::int64_t i) {
        const std::int64_t matrix = i / pieces;
        const std::int64_t at = i % pieces * kPiece;
        const std::int64_t length = std::min(kPiece, n - at);
        const auto first = squares.begin() + matrix * pieces;
        const C factor =
            static_cast<C>(size / (std::sqrt(std::accumulate(first, first + pieces, 0.0)) + eps));
        const C* xs = x.read(args.in[0], matrix * n + at, length);
        y.write(args.out[0], matrix * n + at, length,
                [&](C* to) { array(to, length) = factor * array(xs, length); });
      });
    };
  });
}

Kernel make_matrix_polynomial(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const std::int64_t n = v.in(0).shape[-1];
    const C a = static_cast<C>(v.op.attrs.number("a"));
    const C b = static_cast<C>(v.op.attrs.number("b"));
    const C c = static_cast<C>(v.op.attrs.number("c"));
    const bool has_square = v.has_in(1);
    return [=, rows = v.in(0).shape.numel() / n, linear = in_operand<C>(v, 0, n),
            square = has_square ? in_operand<C>(v, 1, n) : Operand<C>(),
            y = out_operand<C>(v, 0, n)](const KernelArgs& args) {
      for_rows(rows, [&](std::int64_t r) {
        const C* as = linear.read(args.in[0], r * n, n);
        const C* qs = has_square ? square.read(args.in[1], r * n, n) : nullptr;
        y.write(args.out[0], r * n, n, [&](C* to) {
          if (has_square) {
            array(to, n) = b * array(as, n) + c * array(qs, n);
          } else {
            array(to, n) = b * array(as, n);
          }
          to[r % n] += a;
        });
      });
    };
  });
}

MakerRows matrix_optimizer_rows() {
  namespace ops = program::ops;
  return {{&ops::kMomentum, make_momentum, "reference::momentum"},
          {&ops::kNormalize, make_normalize, "reference::normalize"},
          {&ops::kMatrixPolynomial, make_matrix_polynomial, "reference::matrix_polynomial"}};
}

}  // namespace rooflm::backends::cpu::reference
