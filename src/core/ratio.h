// Ratios of optional values, and MFU; shared by all rooms.
#pragma once

#include <optional>

namespace rooflm::core {

/// numerator / denominator; nothing if either is missing or the denominator is 0.
inline std::optional<double> ratio_of(const std::optional<double>& numerator,
                                      const std::optional<double>& denominator) {
  if (!numerator || !denominator || *denominator == 0) return std::nullopt;
  return *numerator / *denominator;
}

/// MFU is model FLOPs per token times this: tokens/s are those of all ranks, the peak is that of one.
inline constexpr const char* kMfuFormula = "tokens/s / (ranks * peak)";

/// Model FLOP utilisation (PaLM, appendix B): model_flop / seconds / peak, where model_flop is (6N + 12 L C
/// T), with frozen weights (4N + 12 L C T), times the tokens computed in that time. Nothing unless all three
/// are known.
inline std::optional<double> mfu_of(const std::optional<double>& model_flop,
                                    const std::optional<double>& seconds,
                                    const std::optional<double>& peak_flop_per_s) {
  return ratio_of(ratio_of(model_flop, seconds), peak_flop_per_s);
}

}  // namespace rooflm::core
