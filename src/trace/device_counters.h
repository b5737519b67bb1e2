// Hardware counters of a device, range by range.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rooflm::trace {

/// One metric as the device's profiler calls it, and what a record calls it. Metrics of one `name` add up.
struct CounterMetric {
  std::string metric;  ///< "dram__bytes_read.sum"
  std::string name;    ///< "dram_read_bytes"
  std::string unit;    ///< "B"
  double weight = 1;   ///< of one count, in `unit`
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
  std::size_t id = 0;  ///< as given to begin_range
  std::vector<CountedValue> values;
};

/// The counters of one GPU. A set needs one or more passes, in each of which the same work runs: begin(),
/// then until end_pass() says that all is counted, begin_pass(), the ranges, end_pass(); then take(). Not for
/// several threads. Methods throw core::Unavailable with the reason in one line; after that nothing more is
/// counted of this set.
class DeviceCounters {
 public:
  DeviceCounters() = default;
  DeviceCounters(const DeviceCounters&) = delete;
  DeviceCounters& operator=(const DeviceCounters&) = delete;
  virtual ~DeviceCounters() = default;

  /// "GH100".
  [[nodiscard]] virtual std::string chip() const = 0;
  /// Counts this set from now on, in at most `max_ranges` ranges per pass. Metrics that the chip does not
  /// have are left out.
  virtual void begin(const CounterSet& set, std::size_t max_ranges) = 0;
  /// That the set needs; after begin().
  [[nodiscard]] virtual int passes() const = 0;
  virtual void begin_pass() = 0;
  /// The device has nothing else to do when a range begins and when it ends. Ranges are not nested, and come
  /// in the same order in each pass.
  virtual void begin_range(std::size_t id) = 0;
  virtual void end_range() = 0;
  /// True when the set is counted.
  virtual bool end_pass() = 0;
  /// What was counted in each range. Ends the set.
  [[nodiscard]] virtual std::vector<CountedRange> take() = 0;
  /// Ends the set, whatever was counted; does nothing when there is none.
  virtual void cancel() noexcept = 0;
};

/// Counters of the GPU that the calling thread uses, through CUPTI's range profiler, found when the program
/// runs. Throws core::Unavailable: CUPTI is not here or too old, counters are for administrators only, the
/// GPU is virtual or divided, another profiler has the counters. The message says what to allow.
std::unique_ptr<DeviceCounters> open_device_counters();

/// Passes that these metrics of a chip ("GH100") need together; needs CUPTI and no GPU. Throws
/// core::Unavailable, core::UsageError for a chip that CUPTI does not know.
int counter_passes(const std::string& chip, const CounterSet& set);

}  // namespace rooflm::trace
