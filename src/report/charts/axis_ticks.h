// Positions and labels of the ticks of an axis.
#pragma once

#include <string>
#include <vector>

namespace rooflm::report {

struct Tick {
  double value = 0;
  std::string label;
};

/// Round values (1, 2, 5 times a power of ten) that span [low, high], about `count` of them. `low` < `high`.
std::vector<Tick> linear_ticks(double low, double high, int count, const std::string& unit);
/// Powers of ten within [low, high] (both positive), and 2 and 5 times them when there are fewer than three.
std::vector<Tick> log_ticks(double low, double high, const std::string& unit);
/// A value on an axis or in a title: "10 ms", "1.5 GB", "40%", "2 k".
std::string tick_label(double value, const std::string& unit);

}  // namespace rooflm::report
