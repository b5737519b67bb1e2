// The kinds of activations of feed-forward layers.
#pragma once

#include <cstdint>

namespace rooflm::program {

/// The attribute `kind` of activate as a number. f(x):
enum class Activation : std::uint8_t {
  gelu_tanh,  ///< 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016)
  gelu,       ///< x Phi(x), Phi(x) = (1 + erf(x / sqrt(2))) / 2
  silu,       ///< x / (1 + exp(-x))
  relu,       ///< max(x, 0)
  relu2,      ///< max(x, 0)^2 (So et al., 2021)
  /// With weights a, b [2] and p = log(1 + exp(a)), n = 0.5 + log(1 + exp(b)): p x^2 + x / 2 of x > 0, of
  /// others n (exp(min(x, -1e-6)) - 1 - x) + x / 2 (Huang and Schlag, 2024). Not gated.
  xielu,
  /// g sigmoid(1.702 g), g = min(x, 7). Gated alone, with (1 + up), where up is kept within -7 and 7
  /// (gpt-oss, 2025).
  clipped_swiglu,
};
/// Calls body.template operator()<kind>().
template <class Body>
auto with_activation(Activation kind, Body&& body) {
  switch (kind) {
    case Activation::gelu_tanh:
      return body.template operator()<Activation::gelu_tanh>();
    case Activation::gelu:
      return body.template operator()<Activation::gelu>();
    case Activation::silu:
      return body.template operator()<Activation::silu>();
    case Activation::relu:
      return body.template operator()<Activation::relu>();
    case Activation::relu2:
      return body.template operator()<Activation::relu2>();
    case Activation::xielu:
      return body.template operator()<Activation::xielu>();
    case Activation::clipped_swiglu:
      break;
  }
  return body.template operator()<Activation::clipped_swiglu>();
}

inline constexpr double kClipped = 7, kClippedSlope = 1.702;
inline constexpr double kXieluLinear = 0.5, kXieluBelow = -1e-6;

}  // namespace rooflm::program
