// Laws of what is shown: executions are whole, shares are of one total, what was not measured is not a
// number.
#include <fmt/format.h>

#include <array>
#include <string_view>
#include <unordered_set>

#include "core/units.h"
#include "report/model/kernels.h"
#include "report/model/memory_curve.h"
#include "report/model/summaries.h"
#include "report/verify/laws.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

void check_kernels(const RunData& run, LawBook& laws) {
  double device_s = 0;
  std::int64_t executions = 0;
  for (const record::Event& event : run.events) {
    if (run.find_op(event.op) == nullptr) continue;
    device_s += static_cast<double>(event.device_ns) * core::kNano;
    ++executions;
  }
  double total_s = 0;
  double shares = 0;
  std::int64_t instances = 0;
  for (const Kernel& kernel : kernels_of(run)) {
    total_s += kernel.total_s;
    shares += kernel.time_share.value_or(0);
    instances += kernel.instances;
  }
  if (executions == 0) return;
  laws.equal("instances of kernels are whole executions", "all kernels", static_cast<double>(instances),
             static_cast<double>(executions), "instances", kExact);
  laws.equal("kernels add up to the executions", "all kernels", total_s, device_s, "s", kRounding);
  if (device_s > 0) laws.equal("shares of a total add up to 1", "kernels", shares, 1, "share", kRounding);
}

void check_blocks(const RunData& run, LawBook& laws) {
  const Work step = phase_work(run, kStep);
  if (!step.measured_s() || *step.measured_s() <= 0) return;
  double shares = 0;
  for (const Group& block : blocks_of(run)) {
    shares += block.time_share.value_or(0);
  }
  laws.equal("shares of a total add up to 1", "blocks", shares, 1, "share", kRounding);
}

/// A device that only takes orders lets nobody see when single ops of a replay are submitted: wall times that
/// are copies of device times were not measured, and a launch gap made of them would be 0 by construction.
void check_wall_times(const RunData& run, LawBook& laws) {
  if (!is_on_gpu(run)) return;
  std::int64_t with_wall = 0;
  std::int64_t copied = 0;
  for (const record::Event& event : run.events) {
    if (!event.wall_ns || event.device_ns == 0) continue;
    ++with_wall;
    if (*event.wall_ns == event.device_ns) ++copied;
  }
  if (with_wall == 0) return;
  laws.at_most("wall times are measured, not copied from device times", "events of a GPU",
               copied == with_wall ? static_cast<double>(copied) : 0, 0, "events", kExact);
}

/// Facts that are nothing when they are 0: such a one was not measured and must be absent.
constexpr std::array<std::string_view, 6> kNeverZero = {
    "peak_flop_per_s", "datasheet_flop_per_s", "model_flop", "tokens", "needed_bytes", "peak_bytes"};

void check_facts(const RunData& run, LawBook& laws) {
  for (const std::string_view key : kNeverZero) {
    const record::Fact* fact = run.fact(key);
    if (fact == nullptr || !fact->value) continue;
    laws.positive("what was not measured is absent, not 0", std::string(key), *fact->value, fact->unit);
  }
}

void check_roles(const RunData& run, LawBook& laws) {
  const MemoryCurve curve(run);
  if (curve.empty()) return;
  std::int64_t sum = 0;
  for (const auto& [role, bytes] : curve.peak_by_role()) sum += bytes;
  laws.equal("roles at the peak add up to the peak", "memory", static_cast<double>(sum),
             static_cast<double>(curve.peak_bytes()), "B", kExact);
}

}  // namespace

void check_views(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const RunData data = load_run(record, run);
  check_kernels(data, laws);
  check_blocks(data, laws);
  check_wall_times(data, laws);
  check_facts(data, laws);
  check_roles(data, laws);
}

void check_activities(const record::Reader& record, const record::Run& run, LawBook& laws) {
  const auto activities = record.rows<record::Activity>(run.id);
  if (activities.empty()) return;
  std::unordered_set<std::int64_t> lanes;
  std::unordered_set<std::int64_t> names;
  for (const record::Lane& lane : record.rows<record::Lane>(run.id)) lanes.insert(lane.lane);
  for (const record::ActivityName& name : record.rows<record::ActivityName>(run.id)) names.insert(name.name);
  for (const record::Activity& activity : activities) {
    const auto what = [&] { return fmt::format("activity {}", activity.id); };
    laws.at_most("activities end after they start", what, static_cast<double>(activity.start_ns),
                 static_cast<double>(activity.end_ns), "ns", kExact);
    laws.equal("activities have a lane and a name", what,
               (lanes.contains(activity.lane) ? 0 : 1) + (names.contains(activity.name) ? 0 : 1), 0,
               "missing", kExact);
  }
}

}  // namespace rooflm::report
