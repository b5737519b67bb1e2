// Laws of memory: what is allocated is freed, and the peak is the one that was planned.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "report/laws.h"

namespace rooflm::report {
namespace {

/// The op of tensors that persist from step to step.
constexpr std::int64_t kBeforeTheStep = -1;

struct Balance {
  std::int64_t live_bytes = 0;
  std::int64_t persistent_bytes = 0;
  std::int64_t peak_bytes = 0;
};

double as_double(std::int64_t bytes) { return static_cast<double>(bytes); }

Balance check_events(const std::vector<record::MemoryEvent>& events, LawBook& laws) {
  Balance balance;
  std::unordered_map<std::int64_t, std::int64_t> live_of_tensor;
  for (const record::MemoryEvent& event : events) {
    const auto what = [&] { return fmt::format("event {}, tensor {}", event.seq, event.tensor); };
    balance.live_bytes += event.bytes;
    laws.equal("live_bytes is the running sum", what, as_double(event.live_bytes),
               as_double(balance.live_bytes), "B", kExact);
    laws.at_most("live_bytes is never negative", what, -as_double(event.live_bytes), 0, "B", kExact);
    std::int64_t& live = live_of_tensor[event.tensor];
    live += event.bytes;
    // Alive twice, or freed before it was there.
    laws.equal("a tensor is allocated, then freed", what, as_double(live),
               as_double(event.bytes > 0 ? event.bytes : 0), "B", kExact);
    if (event.op == kBeforeTheStep) balance.persistent_bytes += event.bytes;
    balance.peak_bytes = std::max(balance.peak_bytes, event.live_bytes);
  }
  return balance;
}

void check_sizes(const std::vector<record::MemoryEvent>& events, const std::vector<record::Tensor>& tensors,
                 LawBook& laws) {
  std::unordered_map<std::int64_t, const record::Tensor*> tensor_of;
  for (const record::Tensor& tensor : tensors) tensor_of.emplace(tensor.tensor, &tensor);
  for (const record::MemoryEvent& event : events) {
    const auto tensor = tensor_of.find(event.tensor);
    if (tensor == tensor_of.end()) continue;
    laws.equal(
        "memory events are as large as their tensors",
        [&] { return fmt::format("event {}, {}", event.seq, tensor->second->name); },
        as_double(event.bytes > 0 ? event.bytes : -event.bytes), as_double(tensor->second->bytes), "B",
        kExact);
  }
}

}  // namespace

void check_memory(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const auto events = record.memory_events(run.id);
  if (events.empty()) return;
  const Balance balance = check_events(events, laws);
  check_sizes(events, record.tensors(run.id), laws);
  laws.equal("a step frees what it allocates", "last event", as_double(balance.live_bytes),
             as_double(balance.persistent_bytes), "B", kExact);
  const auto fact = [&](const std::string& key) -> std::optional<double> {
    const auto found = record.fact(run.id, key);
    return found ? found->value : std::nullopt;
  };
  if (const auto state = fact("state_bytes")) {
    laws.equal("what persists is state_bytes", "before the step", as_double(balance.persistent_bytes), *state,
               "B", kExact);
  }
  if (const auto peak = fact("plan_peak_bytes")) {
    laws.equal("the peak is plan_peak_bytes", "all events", as_double(balance.peak_bytes), *peak, "B",
               kExact);
  }
  const double transient_peak = as_double(balance.peak_bytes - balance.persistent_bytes);
  // An engine that allocates as it goes counts for itself; of a planned arena the plan says what is alive at
  // most.
  if (const auto counted = fact("allocator_peak_bytes")) {
    laws.equal("the peak is what the allocator counted", "all events", transient_peak, *counted, "B", kExact);
  } else if (const auto planned = fact("live_bytes_peak")) {
    laws.equal("the peak is what was planned", "all events", transient_peak, *planned, "B", kExact);
  }
}

}  // namespace rooflm::report
