// Hardware counters of a device, range by range.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rooflm::trace {

/// One metric: the profiler's name and the record's name. Metrics with the same `name` are summed.
struct CounterMetric {
  std::string metric;  ///< "dram__bytes_read.sum"
  std::string name;    ///< "dram_read_bytes"
  std::string unit;    ///< "B"
  double weight = 1;   ///< value of one count, in `unit`
};

/// Metrics that are counted together.
struct CounterSet {
  std::string name;  ///< "memory"
  std::vector<CounterMetric> metrics;
};

struct CountedValue {
  std::string name{};
  double value = 0;
  std::string unit{};
};

struct CountedRange {
  std::size_t id = 0;  ///< the id passed to begin_range
  std::vector<CountedValue> values;
};

/// The counters of one GPU. A set needs one or more passes; the same work must run in each. Call begin();
/// then begin_pass(), the ranges, end_pass() until end_pass() returns true; then take(). Not thread-safe.
/// Methods throw core::Unavailable with the reason in one line; the set is then abandoned.
class DeviceCounters {
 public:
  DeviceCounters() = default;
  DeviceCounters(const DeviceCounters&) = delete;
  DeviceCounters& operator=(const DeviceCounters&) = delete;
  virtual ~DeviceCounters() = default;

  /// "GH100".
  [[nodiscard]] virtual std::string chip() const = 0;
  /// Starts counting this set, with at most `max_ranges` ranges per pass. Metrics that the chip lacks are
  /// left out.
  virtual void begin(const CounterSet& set, std::size_t max_ranges) = 0;
  /// Passes that the set needs; after begin().
  [[nodiscard]] virtual int passes() const = 0;
  virtual void begin_pass() = 0;
  /// The device must be otherwise idle when a range begins and when it ends. Ranges are not nested, and come
  /// in the same order in each pass.
  virtual void begin_range(std::size_t id) = 0;
  virtual void end_range() = 0;
  /// Returns true when the set is complete.
  virtual bool end_pass() = 0;
  /// The counts of each range. Ends the set.
  [[nodiscard]] virtual std::vector<CountedRange> take() = 0;
  /// Ends the set and discards its counts; does nothing if there is none.
  virtual void cancel() noexcept = 0;
};

/// Counters of the calling thread's current GPU, through CUPTI's range profiler, loaded at run time. Throws
/// core::Unavailable if CUPTI is missing or too old, counters are restricted to administrators, the GPU is
/// virtual or partitioned, or another profiler has the counters. The message says what to allow.
std::unique_ptr<DeviceCounters> open_device_counters();

/// Number of passes for these metrics on a chip ("GH100"). Needs CUPTI but no GPU. Throws core::Unavailable,
/// and core::UsageError for a chip that CUPTI does not know.
int counter_passes(const std::string& chip, const CounterSet& set);

}  // namespace rooflm::trace
