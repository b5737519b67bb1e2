// Laws of memory: what is allocated is freed, and the peak is the one that was planned.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/verify/laws.h"

namespace rooflm::report {
namespace {

/// The op of tensors that persist from step to step.
constexpr std::int64_t kBeforeTheStep = -1;
/// Of events of programs that are not ours.
constexpr std::int64_t kNoOp = -2;

/// What is allocated and freed: a tensor, or a place in memory.
std::int64_t holder_of(const record::MemoryEvent& event) {
  return event.tensor ? *event.tensor : event.address.value_or(0);
}

/// Plans give each tensor whole lines of 64 bytes (passes::MemoryPlan); events count its own bytes.
double aligned(double bytes) {
  constexpr double kLine = 64;
  return std::copysign(std::ceil(std::abs(bytes) / kLine) * kLine, bytes);
}

/// Running sums over memory events, in bytes: exact up to 2^53, and records may hold any number.
struct Balance {
  double live_bytes = 0;
  double persistent_bytes = 0;
  double peak_bytes = 0;

  void add(std::int64_t op, double bytes) {
    live_bytes += bytes;
    if (op == kBeforeTheStep) persistent_bytes += bytes;
    peak_bytes = std::max(peak_bytes, live_bytes);
  }
  [[nodiscard]] double transient_peak_bytes() const { return peak_bytes - persistent_bytes; }
};

/// The same events by the bytes of the tensors and by those that a plan gives them.
struct Balances {
  Balance own;
  Balance planned;
};

double as_double(std::int64_t bytes) { return static_cast<double>(bytes); }

Balances check_events(const std::vector<record::MemoryEvent>& events, LawBook& laws) {
  Balances balances;
  std::map<std::pair<std::string, std::int64_t>, double> live_of_tensor;
  std::map<std::string, double> live_of_device;
  for (const record::MemoryEvent& event : events) {
    const auto what = [&] {
      return fmt::format("event {}, {} {}", event.seq, event.tensor ? "tensor" : "address", holder_of(event));
    };
    const double bytes = as_double(event.bytes);
    balances.own.add(event.op.value_or(kNoOp), bytes);
    balances.planned.add(event.op.value_or(kNoOp), aligned(bytes));
    double& live_bytes = live_of_device[event.device];
    live_bytes += bytes;
    laws.equal("live_bytes is the running sum", what, as_double(event.live_bytes), live_bytes, "B", kExact);
    laws.at_most("live_bytes is never negative", what, -as_double(event.live_bytes), 0, "B", kExact);
    if (!event.tensor && !event.address) continue;  // an amount alone
    double& live = live_of_tensor[{event.device, holder_of(event)}];
    live += bytes;
    // Alive twice, or freed before it was there.
    laws.equal("a tensor is allocated, then freed", what, live, std::max(0.0, bytes), "B", kExact);
  }
  return balances;
}

void check_sizes(const std::vector<record::MemoryEvent>& events, const std::vector<record::Tensor>& tensors,
                 LawBook& laws) {
  std::unordered_map<std::int64_t, const record::Tensor*> tensor_of;
  for (const record::Tensor& tensor : tensors) tensor_of.emplace(tensor.tensor, &tensor);
  for (const record::MemoryEvent& event : events) {
    if (!event.tensor) continue;
    const auto tensor = tensor_of.find(*event.tensor);
    if (tensor == tensor_of.end()) continue;
    laws.equal(
        "memory events are as large as their tensors",
        [&] { return fmt::format("event {}, {}", event.seq, tensor->second->name); },
        std::abs(as_double(event.bytes)), as_double(tensor->second->bytes), "B", kExact);
  }
}

}  // namespace

void check_memory(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const auto events = record.rows<record::MemoryEvent>(run.id);
  if (events.empty()) return;
  const auto [own, planned] = check_events(events, laws);
  const auto tensors = record.rows<record::Tensor>(run.id);
  // Without offsets the engine allocates as it goes, and the arena was only planned.
  const bool is_planned =
      std::ranges::any_of(tensors, [](const record::Tensor& tensor) { return tensor.offset.has_value(); });
  check_sizes(events, tensors, laws);
  // What is known of another program is a part of its time: it need not end as it began.
  if (run.kind != "foreign") {
    laws.equal("a step frees what it allocates", "last event", own.live_bytes, own.persistent_bytes, "B",
               kExact);
  }
  const auto fact_is = [&](const std::string& key, std::string_view law, double found_bytes) {
    const auto fact = record.fact(run.id, key);
    const bool is_there = fact && fact->value;
    if (is_there) laws.equal(law, "all events", found_bytes, *fact->value, "B", kExact);
    return is_there;
  };
  // Tensors that share a place are one allocation: counting both would pass what the arena holds.
  if (const auto arena = record.fact(run.id, "arena_bytes"); arena && arena->value && is_planned) {
    laws.at_most("live tensors fit the arena", "all events", own.transient_peak_bytes(), *arena->value, "B",
                 kExact);
    for (const record::Tensor& tensor : tensors) {
      if (!tensor.offset) continue;
      laws.at_most(
          "tensors lie in the arena", [&] { return tensor.name; },
          as_double(*tensor.offset) + as_double(tensor.bytes), *arena->value, "B", kExact);
    }
  }
  if (const auto live = record.fact(run.id, "live_bytes_peak"), arena = record.fact(run.id, "arena_bytes");
      live && arena && live->value && arena->value && is_planned) {
    laws.at_most("live tensors fit the arena", "live_bytes_peak", *live->value, *arena->value, "B", kExact);
  }
  fact_is("state_bytes", "what persists is state_bytes", planned.persistent_bytes);
  fact_is("plan_peak_bytes", "the peak is plan_peak_bytes", planned.peak_bytes);
  // An engine that allocates as it goes counts for itself; of a planned arena the plan says what is alive at
  // most.
  if (!fact_is("allocator_peak_bytes", "the peak is what the allocator counted",
               own.transient_peak_bytes())) {
    fact_is("live_bytes_peak", "the peak is what was planned", planned.transient_peak_bytes());
  }
}

}  // namespace rooflm::report
