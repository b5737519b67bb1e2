// Memory over one step: live bytes by role, and the tensors alive at a moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// Live bytes after one memory event.
struct MemoryMoment {
  std::int64_t op = -1;
  std::string phase;  ///< of the op; "persistent" before the first one
  std::int64_t live_bytes = 0;
  std::map<std::string, std::int64_t> by_role;
};

/// A tensor that is alive at some moment.
struct Holder {
  const record::Tensor* tensor = nullptr;  ///< borrowed from the run
  std::int64_t bytes = 0;
  std::int64_t allocated_by = -1;  ///< op
  std::optional<double> share{};   ///< of the peak
};

/// Of one device: of several the one with the highest peak, where a GPU comes before the host.
class MemoryCurve {
 public:
  /// Borrows `run`. Walks its memory events in their order.
  explicit MemoryCurve(const RunData& run);

  [[nodiscard]] bool empty() const { return run_.memory_events.empty(); }
  /// The device, as events name it ("": that of the run), and how many have some.
  [[nodiscard]] const std::string& device() const { return device_; }
  [[nodiscard]] std::size_t devices() const { return devices_; }
  [[nodiscard]] std::int64_t peak_bytes() const { return peak_bytes_; }
  /// Index of the memory event after which the most bytes are alive.
  [[nodiscard]] std::size_t peak_event() const { return peak_event_; }
  /// Bytes by role after that event: they add up to peak_bytes.
  [[nodiscard]] const std::map<std::string, std::int64_t>& peak_by_role() const { return peak_by_role_; }
  /// The highest moment of each phase and of the persistent tensors before it, in the order of the step.
  [[nodiscard]] const std::vector<MemoryMoment>& phase_peaks() const { return phase_peaks_; }
  /// The highest moment of each op that changed anything, in the order of the step: inputs that an op frees
  /// are alive beside its outputs.
  [[nodiscard]] const std::vector<MemoryMoment>& by_op() const { return by_op_; }
  /// Tensors alive after the memory event of that index, largest first.
  [[nodiscard]] std::vector<Holder> holders(std::size_t event) const;

 private:
  const RunData& run_;
  std::string device_;
  std::size_t devices_ = 0;
  std::unordered_map<std::int64_t, const record::Tensor*> tensors_;
  std::vector<MemoryMoment> phase_peaks_, by_op_;
  std::map<std::string, std::int64_t> peak_by_role_;
  std::int64_t peak_bytes_ = 0;
  std::size_t peak_event_ = 0;
};

}  // namespace rooflm::report
