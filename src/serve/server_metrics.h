// What a server counts, in the form that Prometheus scrapes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace rooflm::serve {

/// Counts of values by upper bounds, cumulative when printed.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1, 0) {}
  void add(double value);
  /// Lines of `name`.
  [[nodiscard]] std::string lines(const std::string& name) const;

 private:
  std::vector<double> bounds_;  ///< ascending
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

/// Names are those of vLLM's metrics behind another prefix, so that its dashboards need that one change.
struct ServerMetrics {
  std::int64_t running = 0, waiting = 0;  ///< requests
  std::uint64_t prompt_tokens = 0, generation_tokens = 0;
  std::uint64_t guessed_tokens = 0, accepted_tokens = 0;  ///< of speculative decoding
  std::uint64_t refused = 0;                              ///< since too many waited
  std::map<std::string, std::uint64_t> finished{};        ///< by reason
  Histogram ttft{{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                  1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560}};
  Histogram inter_token{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                         0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80}};
  Histogram latency{{0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5, 5,    10,
                     15,   20,   30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680}};
  Histogram queue{{0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5,  5,   10,
                   15,    20,   30,   40,  50,  60,  120, 240, 480, 960, 1920, 7680}};

  /// Prometheus' text format, version 0.0.4.
  [[nodiscard]] std::string text() const;
};

}  // namespace rooflm::serve
