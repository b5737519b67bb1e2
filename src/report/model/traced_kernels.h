// The kernels of traced steps, each with its op, class, launch and time; and their sums by name, which views,
// page and verify share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "report/model/device_times.h"
#include "report/model/kernel_names.h"
#include "report/model/launch_shape.h"
#include "report/model/run_data.h"

namespace rooflm::report {

/// One kernel that ran. Points into the run and into the TracedKernels that it is of.
struct TracedKernel {
  std::size_t index = 0;  ///< into RunData::activities
  const record::Activity* activity = nullptr;
  const TimedOp* op = nullptr;         ///< nullptr: not known
  const KernelPrice* price = nullptr;  ///< of a foreign program; nullptr: not known
  const KernelName* name = nullptr;
  const std::string* text = nullptr;  ///< the whole name
  std::string_view kernel_class{};
  const LaunchShape* launch = nullptr;
  KernelTime time{};
  std::string_view step_kind{};
  [[nodiscard]] double seconds() const { return static_cast<double>(time.duration_ns) * 1e-9; }
  /// Its part of the step, as KernelTime::charged_ns.
  [[nodiscard]] double charged_s() const { return time.charged_ns * 1e-9; }
  /// What it takes of the step: exclusive time and its part of what it shared.
  [[nodiscard]] double part_s() const {
    return (static_cast<double>(time.exclusive_ns) + time.shared_ns) * 1e-9;
  }
};

/// Whether it is one of the launches that the kernel of its op counts: what fills memory for a matmul is
/// not.
bool is_launch_of_op(const TracedKernel& kernel);

class TracedKernels {
 public:
  explicit TracedKernels(const RunData& run);
  TracedKernels(const TracedKernels&) = delete;
  TracedKernels& operator=(const TracedKernels&) = delete;
  ~TracedKernels() = default;
  [[nodiscard]] const std::vector<TracedKernel>& all() const { return all_; }
  [[nodiscard]] const DeviceTimes& times() const { return times_; }
  /// Steps whose kernels are known, as the engine runs them.
  [[nodiscard]] std::size_t steps() const { return times_.count(kTraced); }
  /// The kernel with that index into RunData::activities; nullptr for others.
  [[nodiscard]] const TracedKernel* find(std::size_t index) const;

 private:
  DeviceTimes times_;
  std::map<std::int64_t, KernelName> names_;
  std::set<std::string, std::less<>> classes_;
  std::unordered_map<std::string_view, LaunchShape> launches_;  ///< by the text of the activity
  std::vector<TracedKernel> all_;
};

/// Those of the run, computed at the first request, and again when activities or ops were added or left out
/// since.
const TracedKernels& traced_kernels(const RunData& run);

/// Devices that ran kernels, in the order of their names.
std::vector<std::string> devices_of(const RunData& run, const TracedKernels& kernels);

/// All executions of a kernel in traced steps that are of one class.
struct KernelSum {
  std::string text{};  ///< the whole name
  KernelName name{};
  std::string kernel_class{};
  std::size_t instances = 0;
  double per_step = 0;
  double total_s = 0, mean_s = 0, median_s = 0, min_s = 0, max_s = 0, std_s = 0;  ///< of durations
  double exclusive_s = 0, shared_s = 0;        ///< shared: its parts of what was shared
  std::optional<double> time_share{};          ///< of the time in which the device was busy
  std::optional<double> roof_share{};          ///< roof / time, of those whose roof is known
  std::optional<double> occupancy{}, waves{};  ///< of the longest execution
  std::string occupancy_limit{};
};

/// Largest share first; of one phase alone where it is named, and then of the time in which the device was
/// busy for it.
std::vector<KernelSum> kernel_sums(const TracedKernels& kernels, std::string_view phase = {});

/// What a matmul computes: "forward", "input gradient", "weight gradient".
std::string gemm_role(const RunData& run, const record::Op& op);

/// Ops that run the same kernel in the same phase: how many kernels of the device that makes.
struct SeenInstances {
  std::string phase{}, op_kind{}, kernel{};
  std::int64_t ops = 0;                     ///< in one step
  std::string explained{};                  ///< "12 layers x 4 + 1"
  std::optional<std::int64_t> predicted{};  ///< launches in one step; nothing where the kernel does not say
  double seen = 0;                          ///< kernels per traced step
  [[nodiscard]] std::optional<bool> agrees() const;
};
std::vector<SeenInstances> seen_instances(const RunData& run, const TracedKernels& kernels);

/// Numbers of the ops whose kernels do not say how many launches they make (fact "unknown_launches").
std::vector<std::int64_t> ops_of_unknown_launches(const RunData& run);

}  // namespace rooflm::report
