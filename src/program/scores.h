// What becomes of the products q k^T of attention, as the attributes of an op say it.
#pragma once

#include <cstdint>
#include <string>

#include "program/program.h"

namespace rooflm::program {

/// Query t and key j of head h have the score cap(scale heat(t) q k^T) - slope(h) (t - j), where cap(s) is
/// `cap` tanh(s / cap). Query t sees keys first_key(t) .. t.
struct Scores {
  double scale = 1;         ///< attribute `scale`; absent: 1 / sqrt(head_dim)
  double cap = 0;           ///< 0: scores are not capped
  std::int64_t window = 0;  ///< keys that a query sees, its own included; 0: all
  bool alibi = false;       ///< otherwise slopes are 0
  double slopes = 1;        ///< factor of the slopes

  std::int64_t chunk = 0;  ///< > 0: a query sees keys from a multiple of this on (Llama 4)
  double temperature = 0;  ///< how much heat(t) grows with each `floor` positions (Llama 4)
  double floor = 1;

  /// From the attributes scale, cap, window, alibi, slopes, chunk, temperature and floor; head_dim if there
  /// is no scale.
  static Scores of(const Attributes& attributes);
  [[nodiscard]] std::int64_t first_key(std::int64_t t) const {
    if (chunk > 0) return t / chunk * chunk;
    return window > 0 && t >= window ? t - window + 1 : 0;
  }
  /// 1 + temperature log(1 + floor((t + 1) / floor))
  [[nodiscard]] double heat(std::int64_t t) const;
  /// Of ALiBi (Press et al., 2022): powers of 2^(-8/n) for the largest power of two n <= heads; further heads
  /// have every second one of those for 2 n.
  [[nodiscard]] double slope(std::int64_t head, std::int64_t heads) const;
};

/// The input with a score per head [H] that attends to nothing ("sinks"): part of the sum that softmax
/// divides by. kNone if the op has none.
TensorId sinks_of(const Op& op);

/// What an op on attention's scores does besides softmax(q k^T / sqrt(D)) v, or any op that processors alone
/// compute, in words; empty: nothing. For backends without kernels for it.
std::string beyond_plain(const Op& op);

/// What an op of any kind does that kernels of processors alone compute, in words; empty: nothing.
std::string processors_only(const Op& op);

}  // namespace rooflm::program
