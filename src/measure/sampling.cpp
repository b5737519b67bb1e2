// Repeating a short piece of work until its time is known well enough.
#include "measure/sampling.h"

#include <chrono>
#include <vector>

namespace rooflm::measure {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

core::Summary measure_rate(double amount, const std::function<void()>& work, const SamplingOptions& options) {
  work();
  std::vector<double> rates;
  const double begin = now_s();
  double mark = begin;
  while (static_cast<int>(rates.size()) < options.max_samples) {
    work();
    const double now = now_s();
    rates.push_back(amount / (now - mark));
    mark = now;
    if (static_cast<int>(rates.size()) >= options.min_samples && now - begin >= options.seconds) break;
  }
  return core::summarise(rates);
}

}  // namespace rooflm::measure
