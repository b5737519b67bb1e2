// The share of the processors that other programs used during a measurement.
#include "measure/machine_load.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "measure/sampling.h"

namespace rooflm::measure {
namespace {

cpu_set_t allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return set;
}

/// Time that the processors of this process were busy, in seconds; the lines are "cpu3 user nice system idle
/// iowait irq softirq steal ..." in ticks (proc(5)).
std::optional<double> busy_s() {
  constexpr int kIdle = 3;
  constexpr int kIoWait = 4;
  constexpr int kFields = 8;  // guests are in user already
  const cpu_set_t allowed = allowed_processors();
  std::ifstream file("/proc/stat");
  std::string line;
  long long ticks = 0;
  bool found = false;
  while (std::getline(file, line)) {
    if (!line.starts_with("cpu") || line.size() < 4 || line[3] == ' ') continue;
    std::istringstream fields(line.substr(3));
    int processor = -1;
    if (!(fields >> processor) || processor < 0 || processor >= CPU_SETSIZE) continue;
    if (!CPU_ISSET(static_cast<unsigned>(processor), &allowed)) continue;
    for (int i = 0; i < kFields; ++i) {
      long long value = 0;
      if (!(fields >> value)) break;
      if (i != kIdle && i != kIoWait) ticks += value;
    }
    found = true;
  }
  if (!found) return std::nullopt;
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

MachineLoad::MachineLoad() : busy_s_(busy_s()), own_s_(cpu_time_s()), wall_s_(now_s()) {}

std::optional<double> MachineLoad::others_share() const {
  constexpr double kLeast_s = 0.5;
  const double wall_s = now_s() - wall_s_;
  const auto busy_now_s = busy_s();
  if (!busy_s_ || !busy_now_s || wall_s < kLeast_s) return std::nullopt;
  const cpu_set_t allowed = allowed_processors();
  const double others_s = (*busy_now_s - *busy_s_) - (cpu_time_s() - own_s_);
  return std::clamp(others_s / (wall_s * CPU_COUNT(&allowed)), 0.0, 1.0);
}

std::string load_sentence(double others_share) {
  constexpr double kPercent = 100;
  return fmt::format("other programs used {:.1f} % of the processors", kPercent * others_share);
}

}  // namespace rooflm::measure
