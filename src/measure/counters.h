// Hardware counters of this process, through perf_event_open(2).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rooflm::measure {

/// An event as the kernel wants it. Several may add up to one quantity: those of the same name do.
struct CounterEvent {
  std::string name;
  std::string unit;
  std::uint32_t type = 0;  ///< PERF_TYPE_...
  std::uint64_t config = 0;
  double weight = 1;  ///< of one count, in `unit`
  int cpu = -1;  ///< -1: of each thread of this process; otherwise of everything that this processor sees
};
/// Events that get their counters together or not at all.
using CounterGroup = std::vector<CounterEvent>;

/// Cycles, instructions and misses of the last cache level; floating-point operations ("flop") where the
/// processor counts them: fp_arith events on Intel (all widths and precisions, a multiply-add is 2; bf16 dot
/// products do not count), retired operations on AMD since Zen; DRAM bytes of the whole machine where its
/// memory controllers tell them.
std::vector<CounterGroup> hardware_events();

/// What was counted between start and stop.
struct CounterValue {
  std::string
      name;  ///< "cycles", "instructions", "cache_misses", "flop", "dram_read_bytes", "dram_written_bytes"
  double value = 0;       ///< scaled up when the event had its counter only part of the time
  std::string unit;       ///< "cycles", "instructions", "misses", "flop", "B"
  double time_share = 1;  ///< part of the time in which it was counted; the rest is extrapolated
};

/// Counts what all threads do in user mode that this process has when this is made (start the threads first).
/// A group that the system refuses is left out; where it refuses all of them nothing is counted, nothing
/// throws, and `reason` says why. Not for several threads.
class Counters {
 public:
  explicit Counters(const std::vector<CounterGroup>& groups = hardware_events());
  Counters(Counters&&) noexcept;
  Counters& operator=(Counters&&) noexcept;
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  ~Counters();

  [[nodiscard]] bool is_available() const { return reason_.empty(); }
  /// One line: why nothing is counted; "" when something is.
  [[nodiscard]] const std::string& reason() const { return reason_; }

  /// Counts from zero on.
  void start();
  void stop();
  /// Between the last start and the last stop, in the order of the events; empty when not available. What
  /// never got a counter, though its threads ran, is left out.
  [[nodiscard]] std::vector<CounterValue> read() const;

 private:
  class Group;
  std::vector<std::unique_ptr<Group>> groups_;
  std::string reason_;
};

}  // namespace rooflm::measure
