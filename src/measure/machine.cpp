// The processor and the memory of this machine, from /proc and /sys.
#include "measure/machine.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include "core/system/control_groups.h"

namespace rooflm::measure {
namespace {

namespace fs = std::filesystem;

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

/// Calls `visit(key, value)` for each "key : value" line of a file.
template <class Visit>
void for_each_field(const char* path, Visit visit) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    visit(trimmed(std::string_view(line).substr(0, colon)),
          trimmed(std::string_view(line).substr(colon + 1)));
  }
}

/// A field such as "MemTotal:  24598204 kB", in bytes.
std::optional<std::int64_t> kilobytes(const char* path, std::string_view wanted) {
  std::optional<std::int64_t> bytes;
  for_each_field(path, [&](const std::string& key, const std::string& value) {
    std::int64_t kib = 0;
    if (key != wanted) return;
    if (std::from_chars(value.data(), value.data() + value.size(), kib).ec == std::errc()) bytes = kib * 1024;
  });
  return bytes;
}

/// "32768K" of /sys, in bytes.
std::int64_t cache_bytes(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  const char unit = end == text.data() + text.size() ? ' ' : *end;
  return unit == 'K' ? value << 10U : unit == 'M' ? value << 20U : value;
}

std::vector<Cache> find_caches() {
  std::vector<Cache> caches;
  for (int i = 0; i < 16; ++i) {
    const fs::path index = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i);
    std::error_code ignored;
    if (!fs::exists(index, ignored)) break;
    Cache cache{.level = static_cast<int>(cache_bytes(first_line(index / "level"))),
                .type = first_line(index / "type"),
                .bytes = cache_bytes(first_line(index / "size")),
                .shared_by = first_line(index / "shared_cpu_list")};
    if (cache.bytes > 0) caches.push_back(std::move(cache));
  }
  return caches;
}

constexpr std::array kFeatures = {"sse4_2",      "avx",         "avx2",     "fma",      "f16c",    "avx512f",
                                  "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"};

int usable_threads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

/// The smaller of two limits that may be absent.
std::optional<std::int64_t> smaller(std::optional<std::int64_t> a, std::optional<std::int64_t> b) {
  if (a && b) return std::min(*a, *b);
  return a ? a : b;
}

std::optional<std::int64_t> bytes_of(double bytes) {
  return std::isfinite(bytes) ? std::optional(static_cast<std::int64_t>(bytes)) : std::nullopt;
}

}  // namespace

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Processor query_processor() {
  Processor processor{
      .model = "", .cores = 0, .threads = usable_threads(), .caches = find_caches(), .features = {}};
  std::set<std::string> cores;
  std::set<std::string> flags;
  std::string package;
  for_each_field("/proc/cpuinfo", [&](const std::string& key, const std::string& value) {
    if (key == "model name" && processor.model.empty()) processor.model = value;
    if (key == "physical id") package = value;
    if (key == "core id") cores.insert(package + ":" + value);
    if (key != "flags" || !flags.empty()) return;
    std::istringstream words(value);
    for (std::string word; words >> word;) flags.insert(word);
  });
  processor.cores = static_cast<int>(cores.size());
  for (const char* feature : kFeatures) {
    if (flags.contains(feature)) processor.features.emplace_back(feature);
  }
  return processor;
}

SystemMemory query_memory() {
  SystemMemory memory{.total_bytes = kilobytes("/proc/meminfo", "MemTotal"),
                      .available_bytes = kilobytes("/proc/meminfo", "MemAvailable")};
  const core::ControlGroups::Memory group = core::ControlGroups().memory();
  memory.total_bytes = smaller(memory.total_bytes, bytes_of(group.limit_bytes));
  memory.available_bytes = smaller(memory.available_bytes, bytes_of(group.left_bytes));
  return memory;
}

std::optional<std::int64_t> resident_bytes() { return kilobytes("/proc/self/status", "VmRSS"); }

std::optional<std::int64_t> peak_resident_bytes() { return kilobytes("/proc/self/status", "VmHWM"); }

bool reset_peak_resident() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5 << std::flush;
  return file.good();
}

}  // namespace rooflm::measure
