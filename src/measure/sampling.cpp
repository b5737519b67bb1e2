// Repeating a short piece of work until its time is known well enough.
#include "measure/sampling.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "core/stop_signals.h"
#include "core/units.h"

namespace rooflm::measure {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_time_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + core::kNano * static_cast<double>(time.tv_nsec);
}

double queued_s() {
  double all_ns = 0;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream file(task.path() / "schedstat");  // "nanoseconds on a processor, in its queue, slices"
    double running_ns = 0;
    double queued_ns = 0;
    if (file >> running_ns >> queued_ns) all_ns += queued_ns;
  }
  return core::kNano * all_ns;
}

double CpuShare::value() const {
  const double run_s = cpu_time_s() - cpu_begin_s_;
  const double wanted_s = run_s + std::max(0.0, queued_s() - queued_begin_s_);
  return wanted_s > 0 ? run_s / wanted_s : 1;
}

std::optional<engines::StepTimes> whole_step(engines::Engine& engine, engines::Observer* observer) {
  try {
    return engine.run(observer);
  } catch (const engines::StepLeft&) {
    return std::nullopt;
  }
}

core::Summary measure_rate(double amount, const std::function<void()>& work, const SamplingOptions& options) {
  const double first = now_s();
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
    if (now - first >= options.most_seconds) break;
  }
  return core::summarise(rates);
}

}  // namespace rooflm::measure
