// Which hardware events there are.
#include "measure/counter_events.h"

#include <linux/perf_event.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "measure/machine.h"

namespace rooflm::measure {
namespace {

namespace fs = std::filesystem;

/// The layout of raw events, of Intel's cores, AMD's cores and Intel's memory controllers alike.
constexpr std::uint64_t raw_config(std::uint64_t event, std::uint64_t unit_mask) {
  return event | unit_mask << 8U;
}

/// The field of the first processor in /proc/cpuinfo; "" without one.
std::string cpuinfo_field(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (colon != std::string::npos && std::string_view(line).substr(0, line.find_first_of("\t:")) == key) {
      return line.substr(colon + 2);
    }
  }
  return {};
}

/// A number of `text`, whole.
template <class Number, class... Base>
std::optional<Number> parse(std::string_view text, Base... base) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "event=0x04,umask=0x03" as a raw event; nothing when it has other terms.
std::optional<std::uint64_t> parse_event(std::string_view text) {
  constexpr int kHexadecimal = 16;
  std::uint64_t event = 0;
  std::uint64_t unit_mask = 0;
  while (!text.empty()) {
    std::string_view term = text.substr(0, text.find(','));
    text.remove_prefix(std::min(term.size() + 1, text.size()));
    const auto equals = term.find("=0x");
    if (equals == std::string_view::npos) return std::nullopt;
    const auto value = parse<std::uint64_t>(term.substr(equals + 3), kHexadecimal);
    term = term.substr(0, equals);
    if (!value || (term != "event" && term != "umask")) return std::nullopt;
    (term == "event" ? event : unit_mask) = *value;
  }
  return raw_config(event, unit_mask);
}

std::optional<CounterEvent> dram_event(const fs::path& device, const std::string& event, const char* name) {
  constexpr double kMebibyte = 1024.0 * 1024.0;
  const fs::path file = device / "events" / event;
  const auto config = parse_event(first_line(file));
  const auto scale = parse<double>(first_line(file.string() + ".scale"));
  const auto type = parse<std::uint32_t>(first_line(device / "type"));
  const std::string processors = first_line(device / "cpumask");  // "0,28": one for each socket
  const auto processor = parse<int>(std::string_view(processors).substr(0, processors.find_first_of(",-")));
  const bool is_known = first_line(file.string() + ".unit") == "MiB";
  if (!config || *config == 0 || !scale || !type || !processor || !is_known) return std::nullopt;
  return CounterEvent{.name = name,
                      .unit = "B",
                      .type = *type,
                      .config = *config,
                      .weight = *scale * kMebibyte,
                      .cpu = *processor};
}

}  // namespace

CounterGroup flop_events(const std::string& vendor, int family) {
  CounterGroup events;
  const auto add = [&](std::uint64_t event, std::uint64_t unit_mask, double flop) {
    events.push_back({.name = "flop",
                      .unit = "flop",
                      .type = PERF_TYPE_RAW,
                      .config = raw_config(event, unit_mask),
                      .weight = flop});
  };
  constexpr int kIntelCore = 6;
  constexpr int kZen = 0x17;
  constexpr int kZen3 = 0x19;
  if (vendor == "GenuineIntel" && family == kIntelCore) {
    // FP_ARITH_INST_RETIRED, bits of the unit mask from the lowest: scalar double, scalar single, then packed
    // double and single of 128, 256 and 512 bits. A multiply-add counts twice.
    constexpr std::uint64_t kFpArith = 0xC7;
    add(kFpArith, 0x03, 1);
    add(kFpArith, 0x04, 2);
    add(kFpArith, 0x18, 4);
    add(kFpArith, 0x60, 8);
    add(kFpArith, 0x80, 16);
  } else if (vendor == "AuthenticAMD" && family >= kZen) {
    // Retired SSE and AVX operations; counts operations, not instructions, a multiply-add twice.
    add(0x03, family >= kZen3 ? 0x1F : 0xFF, 1);
  }
  return events;
}

std::vector<CounterGroup> dram_events(const fs::path& devices) {
  constexpr std::array kReads = {"cas_count_read", "data_read"};
  constexpr std::array kWrites = {"cas_count_write", "data_write"};
  std::vector<CounterGroup> groups;
  std::error_code error;
  std::vector<fs::path> controllers;
  for (const auto& entry : fs::directory_iterator(devices, error)) controllers.push_back(entry.path());
  std::sort(controllers.begin(), controllers.end());
  for (const fs::path& controller : controllers) {
    for (std::size_t i = 0; i < kReads.size(); ++i) {
      const auto read = dram_event(controller, kReads.at(i), "dram_read_bytes");
      const auto write = dram_event(controller, kWrites.at(i), "dram_written_bytes");
      if (read && write) groups.push_back({*read, *write});
    }
  }
  return groups;
}

std::vector<CounterGroup> hardware_events() {
  const auto event = [](const char* name, const char* unit, std::uint64_t config) {
    return CounterEvent{.name = name, .unit = unit, .type = PERF_TYPE_HARDWARE, .config = config};
  };
  std::vector<CounterGroup> groups = {{event("cycles", "cycles", PERF_COUNT_HW_CPU_CYCLES),
                                       event("instructions", "instructions", PERF_COUNT_HW_INSTRUCTIONS),
                                       event("cache_misses", "misses", PERF_COUNT_HW_CACHE_MISSES)}};
  groups.push_back(
      flop_events(cpuinfo_field("vendor_id"), parse<int>(cpuinfo_field("cpu family")).value_or(0)));
  for (CounterGroup& group : dram_events("/sys/bus/event_source/devices")) groups.push_back(std::move(group));
  return groups;
}

}  // namespace rooflm::measure
