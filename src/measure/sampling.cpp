// Repeating a short piece of work until its time is known well enough.
#include "measure/sampling.h"

#include <chrono>
#include <ctime>
#include <vector>

#include "core/stop_signals.h"

namespace rooflm::measure {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_time_s() {
  constexpr double kNanosecond = 1e-9;
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + kNanosecond * static_cast<double>(time.tv_nsec);
}

double CpuShare::value() const {
  const double wanted_s = (now_s() - begin_s_) * threads_;
  return wanted_s > 0 ? (cpu_time_s() - cpu_begin_s_) / wanted_s : 1;
}

core::Summary measure_rate(double amount, const std::function<void()>& work, const SamplingOptions& options) {
  work();
  std::vector<double> rates;
  const double begin = now_s();
  double mark = begin;
  while (static_cast<int>(rates.size()) < options.max_samples) {
    core::StopSignals::check();
    work();
    const double now = now_s();
    rates.push_back(amount / (now - mark));
    mark = now;
    if (static_cast<int>(rates.size()) >= options.min_samples && now - begin >= options.seconds) break;
  }
  return core::summarise(rates);
}

}  // namespace rooflm::measure
