// Memory over one step.
#include "report/model/memory_curve.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "core/ratio.h"

namespace rooflm::report {
namespace {

constexpr const char* kPersistent = "persistent";
constexpr std::int64_t kBeforeTheStep = -1;
/// Of events of programs that are not ours.
constexpr std::int64_t kNoOp = -2;
constexpr std::int64_t kNoTensor = -1;
constexpr const char* kUnknown = "unknown";
/// Role and phase of what a program that is not ours allocates.
constexpr const char* kAllocated = "allocated";

std::string phase_of(const RunData& run, std::int64_t op) {
  if (op == kBeforeTheStep) return kPersistent;
  if (op == kNoOp) return kAllocated;
  const TimedOp* timed = run.find_op(op);
  return timed == nullptr ? kUnknown : timed->op.phase;
}

/// The highest sum of each device, by whether it is no host, and its name.
std::map<std::pair<bool, std::string>, std::int64_t> peaks_of(const RunData& run) {
  constexpr std::string_view kHost = "cpu";
  std::map<std::pair<bool, std::string>, std::int64_t> peaks;
  for (const record::MemoryEvent& event : run.memory_events) {
    std::int64_t& peak =
        peaks.try_emplace({event.device != kHost, event.device}, event.live_bytes).first->second;
    peak = std::max(peak, event.live_bytes);
  }
  return peaks;
}

}  // namespace

MemoryCurve::MemoryCurve(const RunData& run) : run_(run) {
  const auto peaks = peaks_of(run);
  devices_ = peaks.size();
  const auto most = std::ranges::max_element(
      peaks, {}, [](const auto& entry) { return std::pair(entry.first.first, entry.second); });
  if (most != peaks.end()) device_ = most->first.second;
  for (const record::Tensor& tensor : run.tensors) tensors_[tensor.tensor] = &tensor;
  MemoryMoment now;
  bool is_first = true;
  for (std::size_t i = 0; i < run.memory_events.size(); ++i) {
    const record::MemoryEvent& event = run.memory_events[i];
    if (event.device != device_) continue;
    const std::int64_t op = event.op.value_or(kNoOp);
    const bool is_new_op = is_first || op != now.op;
    is_first = false;
    if (is_new_op) now.phase = phase_of(run, op);
    now.op = op;
    now.live_bytes = event.live_bytes;
    const auto tensor = tensors_.find(event.tensor.value_or(kNoTensor));
    const std::string role = tensor != tensors_.end() ? tensor->second->role
                             : event.tensor           ? kUnknown
                                                      : kAllocated;
    now.by_role[role] += event.bytes;
    if (now.live_bytes > peak_bytes_) {
      peak_bytes_ = now.live_bytes;
      peak_event_ = i;
      peak_by_role_ = now.by_role;
    }
    if (is_new_op) {
      by_op_.push_back(now);
    } else if (now.live_bytes > by_op_.back().live_bytes) {
      by_op_.back() = now;
    }
    const auto peak = std::find_if(phase_peaks_.begin(), phase_peaks_.end(),
                                   [&](const MemoryMoment& moment) { return moment.phase == now.phase; });
    if (peak == phase_peaks_.end()) {
      phase_peaks_.push_back(now);
    } else if (now.live_bytes > peak->live_bytes) {
      *peak = now;
    }
  }
}

std::vector<Holder> MemoryCurve::holders(std::size_t event) const {
  std::unordered_map<std::int64_t, Holder> alive;
  for (std::size_t i = 0; i <= event && i < run_.memory_events.size(); ++i) {
    const record::MemoryEvent& change = run_.memory_events[i];
    if (!change.tensor || change.device != device_) continue;
    Holder& holder = alive[*change.tensor];
    const auto tensor = tensors_.find(*change.tensor);
    holder.tensor = tensor == tensors_.end() ? nullptr : tensor->second;
    holder.bytes += change.bytes;
    if (change.bytes > 0) holder.allocated_by = change.op.value_or(kNoOp);
  }
  std::vector<Holder> holders;
  for (auto& [id, holder] : alive) {
    if (holder.bytes <= 0 || holder.tensor == nullptr) continue;
    holder.share = core::ratio_of(static_cast<double>(holder.bytes), static_cast<double>(peak_bytes_));
    holders.push_back(holder);
  }
  std::sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.tensor->tensor < b.tensor->tensor;
  });
  return holders;
}

}  // namespace rooflm::report
