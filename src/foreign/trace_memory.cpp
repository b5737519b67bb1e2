// Memory events of Chrome traces.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "foreign/trace_events.h"

namespace rooflm::foreign {

void TraceEvents::take_memory(const RawEvent& event) {
  if (!event.start_ns || !event.memory_bytes)
    return run_.count("allocations without time or size were left out");
  // c10::DeviceType by its numbers. What is "" is memory of the host, or of nobody.
  constexpr std::array<std::string_view, 21> kTypes = {
      "",      "cuda", "",    "opengl", "opencl", "",   "hip", "fpga", "maia", "xla",        "vulkan",
      "metal", "xpu",  "mps", "",       "hpu",    "ve", "",    "ipu",  "mtia", "privateuse1"};
  const std::int64_t number = event.device_type.value_or(1);
  const std::string_view type =
      number >= 0 && number < std::ssize(kTypes) ? kTypes.at(static_cast<std::size_t>(number)) : "cuda";
  const bool is_host = type.empty();
  if (!is_host) device_types_.insert(std::string(type));
  const std::int64_t device = std::clamp<std::int64_t>(event.device_id.value_or(0), 0, kMostTraceDevices - 1);
  const std::string name = is_host ? "cpu" : fmt::format("{}:{}", type, device);
  allocations_[{track_of(event).first, name}].push_back(
      {*event.start_ns, *event.memory_bytes, event.address, event.total_allocated, event.total_reserved});
  ++taken_;
}

/// The allocator's total says at its first event what was there before the trace began. What is given back
/// without having been taken is part of that, and ForeignRun adds it itself.
void TraceEvents::add_memory(const MergedRanks& ranks) {
  bool has_reserved = false;
  for (auto& [place, events] : allocations_) {
    const std::string device = ranks.device(place.first, place.second);
    std::ranges::stable_sort(events, {}, &Allocation::time_ns);
    std::optional<std::int64_t> before;  // all of it; then without what is given back later
    std::int64_t changed = 0;
    std::set<std::int64_t> seen;
    std::int64_t returned = 0;
    std::optional<std::int64_t> reserved;
    std::int64_t most_reserved = 0;
    for (const Allocation& one : events) {
      run_.add_memory(one.time_ns, one.bytes, one.address, device);
      if (one.reserved && *one.reserved > 0 && one.reserved != reserved) {
        run_.add_gauge({.device = device,
                        .name = "torch_reserved_bytes",
                        .time_ns = one.time_ns,
                        .value = static_cast<double>(*one.reserved),
                        .unit = "byte"});
        most_reserved = std::max(most_reserved, *one.reserved);
      }
      reserved = one.reserved;
      if (__builtin_add_overflow(changed, one.bytes, &changed)) return;
      if (!before && one.total && *one.total >= 0) before = *one.total - changed;
      const bool is_first = one.address && seen.insert(*one.address).second;
      if (is_first && one.bytes < 0) returned -= one.bytes;
    }
    if (most_reserved > 0) {
      run_.add_fact({.key = has_reserved ? "torch_reserved_bytes " + device : "torch_reserved_bytes",
                     .value = static_cast<double>(most_reserved),
                     .unit = "byte",
                     .text = device});
      has_reserved = true;
    }
    if (before && *before > returned) run_.add_memory_before(*before - returned, 0, device);
  }
}

}  // namespace rooflm::foreign
