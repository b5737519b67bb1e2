// How long collectives waited for other ranks.
#include "report/runs/collective_waits.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/units.h"
#include "report/runs/collective_calls.h"

namespace rooflm::report {
namespace {

/// Of fewer calls the shortest says nothing.
constexpr std::size_t kLeastCalls = 3;

/// What makes two calls the same collective: operation, type, bytes and communicator; where they are not
/// known, the kernel and its place among those of its name in the step.
using SameCall = std::tuple<std::string, std::string, std::string, double>;

/// The operation of each kernel that NCCL told of, by its start.
std::map<std::int64_t, SameCall> told_calls(const RunData& run) {
  std::map<std::int64_t, SameCall> calls;
  for (const CollectiveCall& call : collective_calls(run)) {
    if (call.has_kernel) calls[call.start_ns] = {call.op, call.dtype, call.communicator, call.size()};
  }
  return calls;
}

/// From when each kernel transferred, by its place among activities.
std::unordered_map<std::size_t, std::int64_t> estimated_transfers(const RunData& run,
                                                                  const TracedKernels& kernels) {
  const auto told = told_calls(run);
  std::map<SameCall, std::vector<const TracedKernel*>> same;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> places;  // by step and name
  for (const TracedKernel& kernel : kernels.all()) {
    if (!kernel.time.is_collective) continue;
    const auto call = told.find(kernel.activity->start_ns);
    if (call != told.end()) {
      same[call->second].push_back(&kernel);
      continue;
    }
    const std::int64_t step = kernel.activity->step.value_or(kWholeRecording);
    if (step == kWholeRecording) continue;
    const std::int64_t place = places[{step, kernel.activity->name}]++;
    same[{*kernel.text, "", "", static_cast<double>(place)}].push_back(&kernel);
  }
  std::unordered_map<std::size_t, std::int64_t> from_ns;
  for (const auto& [call, all] : same) {
    if (all.size() < kLeastCalls) continue;
    const TracedKernel* least =
        *std::ranges::min_element(all, {}, [](const TracedKernel* one) { return one->time.duration_ns; });
    for (const TracedKernel* one : all) from_ns[one->index] = one->activity->end_ns - least->time.duration_ns;
  }
  return from_ns;
}

std::unordered_map<std::size_t, std::int64_t> known_transfers(const RunData& run,
                                                              const TracedKernels& kernels) {
  std::unordered_map<std::size_t, std::int64_t> from_ns;
  for (const TracedKernel& kernel : kernels.all()) {
    if (!kernel.time.is_collective) continue;
    const auto known = run.transfer_from_ns.find(kernel.activity->start_ns);
    if (known != run.transfer_from_ns.end()) from_ns[kernel.index] = known->second;
  }
  return from_ns;
}

}  // namespace

ExposedCollectives exposed_collectives(const RunData& run, const DeviceTimes& times) {
  ExposedCollectives sum;
  const TracedKernels& kernels = traced_kernels(run);
  const auto steps = static_cast<double>(times.count(kTraced));
  if (times.exposed.empty() || steps == 0) return sum;
  const bool has_ranks = !run.transfer_from_ns.empty();
  const auto from_ns = has_ranks ? known_transfers(run, kernels) : estimated_transfers(run, kernels);
  bool is_known = true;
  for (const Exposed& one : times.exposed) {
    const DeviceStep* step = times.find(one.step);
    if (step == nullptr || step->kind != kTraced) continue;
    const double seconds = static_cast<double>(one.end_ns - one.start_ns) * core::kNano / steps;
    sum.all_s += seconds;
    const auto from = from_ns.find(one.kernel);
    if (from == from_ns.end()) {
      is_known = false;
      continue;
    }
    const std::int64_t until_ns = std::clamp(from->second, one.start_ns, one.end_ns);
    const double waiting_s = static_cast<double>(until_ns - one.start_ns) * core::kNano / steps;
    sum.waiting_s += waiting_s;
    sum.transfer_s += seconds - waiting_s;
  }
  if (is_known && sum.all_s > 0) sum.source = has_ranks ? WaitSource::ranks : WaitSource::estimated;
  return sum;
}

void take_rank_waits(RecordSet& set) {
  if (set.runs.size() < 2) return;
  for (const CollectiveCall& call : collective_calls(set).calls) {
    if (!call.has_kernel || !call.waiting_s) continue;
    const auto waiting_ns = static_cast<std::int64_t>(*call.waiting_s * core::kGiga);
    std::int64_t& from_ns = set.runs[call.run].transfer_from_ns[call.start_ns];
    from_ns = std::max(from_ns, call.start_ns + waiting_ns);
  }
}

}  // namespace rooflm::report
