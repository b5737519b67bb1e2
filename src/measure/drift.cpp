// Whether a machine got slower or faster while it was measured.
#include "measure/drift.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace rooflm::measure {
namespace {

/// Adds up frequencies of processors.
struct Frequencies {
  double sum_hz = 0;
  int count = 0;
  void add(std::string_view text, double unit_hz) {
    const auto begin = text.find_first_not_of(" \t:");
    if (begin == std::string_view::npos) return;
    double value = 0;
    const auto parsed = std::from_chars(text.data() + begin, text.data() + text.size(), value);
    if (parsed.ec != std::errc() || value <= 0) return;
    sum_hz += value * unit_hz;
    ++count;
  }
};

constexpr double kKilohertz = 1e3;
constexpr double kMegahertz = 1e6;
constexpr double kGigahertz = 1e9;

Frequencies scaling_frequencies() {
  Frequencies found;
  for (int cpu = 0;; ++cpu) {
    const std::filesystem::path folder = fmt::format("/sys/devices/system/cpu/cpu{}", cpu);
    std::error_code ignored;
    if (!std::filesystem::exists(folder, ignored)) return found;
    std::ifstream file(folder / "cpufreq/scaling_cur_freq");
    std::string line;
    if (std::getline(file, line)) found.add(line, kKilohertz);
  }
}

Frequencies cpuinfo_frequencies() {
  constexpr std::string_view kKey = "cpu MHz";
  Frequencies found;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kKey)) found.add(std::string_view(line).substr(kKey.size()), kMegahertz);
  }
  return found;
}

}  // namespace

std::optional<double> clock_hz() {
  Frequencies found = scaling_frequencies();
  if (found.count == 0) found = cpuinfo_frequencies();
  if (found.count == 0) return std::nullopt;
  return found.sum_hz / found.count;
}

std::string drift_sentence(const core::Summary& seconds, const ClockChange& clock) {
  constexpr std::size_t kFewest = 10;  // of 5 and 5 the rank test can reach 0.0079
  std::string text;
  if (seconds.count < kFewest) {
    text = fmt::format("{} samples are too few to detect drift ({} are needed)", seconds.count, kFewest);
  } else {
    text = fmt::format("{}: second half {:+.1f} % compared with the first, p = {:.2g}",
                       seconds.drift.is_significant() ? "drift" : "no drift", 100 * (seconds.drift.ratio - 1),
                       seconds.drift.p);
  }
  if (!clock.before_hz || !clock.after_hz) return text;
  return text + fmt::format("; clock {:.2f} GHz before and {:.2f} GHz after", *clock.before_hz / kGigahertz,
                            *clock.after_hz / kGigahertz);
}

}  // namespace rooflm::measure
