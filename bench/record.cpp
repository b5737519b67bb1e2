// How fast a run record stores and returns events: record_bench [EVENTS] [FOLDER].
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "record/reader.h"
#include "record/writer.h"

namespace rooflm::record {
namespace {

constexpr std::int64_t kOpsPerStep = 1000;
constexpr int kRepeats = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Synthetic events: steps of a thousand ops with plausible times.
std::vector<Event> made_up_events(std::int64_t count) {
  std::vector<Event> events;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t wall_ns = 20'000 + i * 7919 % 30'011;
    events.push_back({.step = i / kOpsPerStep,
                      .op = i % kOpsPerStep,
                      .start_ns = i * 40'000,
                      .device_ns = wall_ns - 1000,
                      .wall_ns = wall_ns});
  }
  return events;
}

void run(std::int64_t count, const std::filesystem::path& path) {
  const std::vector<Event> events = made_up_events(count);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    auto start = std::chrono::steady_clock::now();
    Writer writer(path, "record_bench", true);
    const std::int64_t id = writer.begin_run({.label = "made up"});
    // One step at a time, as an observer does.
    for (std::span<const Event> left(events); !left.empty();) {
      const auto step = left.first(std::min<std::size_t>(left.size(), kOpsPerStep));
      writer.add(id, step);
      left = left.subspan(step.size());
    }
    const double added_s = seconds_since(start);
    writer.finish();
    const double written_s = seconds_since(start);

    start = std::chrono::steady_clock::now();
    const Reader reader(path);
    const std::size_t ops = reader.op_times(id).size();
    const double read_s = seconds_since(start);
    const auto n = static_cast<double>(count);
    fmt::print(
        "{} events: added {:.2f} M/s, with finish {:.2f} M/s; read and summed up for {} ops in {:.2f} s; "
        "{:.1f} bytes per event\n",
        count, n / added_s * 1e-6, n / written_s * 1e-6, ops, read_s,
        static_cast<double>(std::filesystem::file_size(path)) / n);
  }
}

}  // namespace
}  // namespace rooflm::record

int main(int argc, char** argv) {
  const std::int64_t count = argc > 1 ? std::atoll(argv[1]) : 2'000'000;
  const std::filesystem::path folder = argc > 2 ? argv[2] : std::filesystem::temp_directory_path();
  const std::filesystem::path path = folder / "record_bench.rooflm";
  try {
    rooflm::record::run(count, path);
  } catch (const std::exception& error) {
    fmt::print(stderr, "record_bench: {}\n", error.what());
    return 1;
  }
  std::filesystem::remove(path);
  return 0;
}
