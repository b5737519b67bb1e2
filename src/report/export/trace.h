// A run as trace formats want it: events on tracks in one clock, and ranges with the device work that they
// started.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// What the name of a step begins with in traces of torch.profiler, before its number.
inline constexpr std::string_view kProfilerStep = "ProfilerStep#";

/// An activity, or in records without any the execution of an op. Points into the run and into its Trace.
struct TraceEvent {
  std::string_view kind{};  ///< as record::ActivityName has it
  std::string_view name{};
  std::string_view own_name{};         ///< of a step: what the program calls it, "" where that is not known
  const record::Lane* lane = nullptr;  ///< never nullptr in a Trace
  std::int64_t start_ns = 0, end_ns = 0;
  std::optional<std::int64_t> correlation{}, bytes{}, step{};
  const TimedOp* op = nullptr;
  std::string_view extra{};
  [[nodiscard]] std::int64_t duration_ns() const { return end_ns - start_ns; }
};

/// What NVTX knows of a range that the program marked; of others the defaults.
struct NvtxRange {
  enum class Style : std::uint8_t { push_pop, start_end, mark };
  Style style = Style::push_pop;  ///< a mark has no end
  std::size_t domain_size = 0;    ///< "NCCL" of the name "NCCL:ncclAllReduce"; 0: the default domain
};

/// A range that the program marked, or that follows from the ops of a step: a phase ("forward"), or an op by
/// its phase and part ("forward/attention/qk").
struct TraceRange {
  std::string name{};
  std::string_view own_name{};  ///< as TraceEvent has it, until the ranges are filled
  std::optional<std::int64_t> step{};
  std::size_t level = 0, children = 0;  ///< 0: nothing around it; ranges directly within
  bool is_recorded = false;             ///< the program marked it
  NvtxRange nvtx{};                     ///< where it did
  /// The thread on which it is, from start to end. nullptr where no thread saw it begin (kernels of a graph
  /// replay are launched by one call): then these times are those of its work.
  const record::Lane* thread = nullptr;
  std::int64_t start_ns = 0, end_ns = 0;
  const TimedOp* op = nullptr;
  std::vector<std::size_t> work{};  ///< events of Trace::events on a device that it started, by start
};

/// What of a run is shown: all traced steps, one of them, or all that was recorded.
struct TraceScope {
  std::optional<std::int64_t> step{};
  bool is_whole = false;
};

class Trace {
 public:
  /// Borrows `run`. Of the traced steps, or of one alone: their work on devices, the calls that asked for it,
  /// and what the host did meanwhile. The whole recording where the scope or a run without steps says so.
  /// Events with impossible times are left out, with a note. Throws core::UsageError for a step of which the
  /// run has no events.
  explicit Trace(const RunData& run, TraceScope scope = {});
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace() = default;

  [[nodiscard]] const RunData& run() const { return run_; }
  [[nodiscard]] const std::vector<TraceEvent>& events() const { return events_; }  ///< by start, longer first
  [[nodiscard]] const std::vector<TraceRange>& ranges() const { return ranges_; }  ///< by start, longer first
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// The call of the host with that correlation; nullptr where the record has none.
  [[nodiscard]] const TraceEvent* call_of(const TraceEvent& event) const;

  /// A number for the process, which records do not name: the lowest of its threads, raised above numbers of
  /// devices.
  [[nodiscard]] std::int64_t process() const { return process_; }
  /// A number of 24 bits for the thread of a lane of the host.
  [[nodiscard]] std::int64_t thread_of(const record::Lane& lane) const;

  /// Whether that time is within what is shown.
  [[nodiscard]] bool is_within(std::int64_t time_ns) const {
    return has_all_ || (begin_ns_ <= time_ns && time_ns <= end_ns_);
  }

  /// Whether the run has events of that step.
  static bool has_step(const RunData& run, std::int64_t step);

 private:
  using FirstCalls =
      std::map<std::pair<std::int64_t, const record::Lane*>, std::int64_t>;  ///< by step, thread
  void find_span(TraceScope scope);
  void take_activities(TraceScope scope);
  void take_ops(std::optional<std::int64_t> step);
  void show_steps_of_the_host(const FirstCalls& first_calls);
  void begin_steps_with_their_calls();
  const record::Lane* lane_of(std::int64_t number);
  void add_recorded_ranges();
  void fill_recorded_ranges();
  void add_op_ranges();
  void place_on_thread(TraceRange& range, const std::vector<std::int64_t>& owners) const;
  void nest_ranges();

  const RunData& run_;
  std::deque<record::Lane> made_lanes_;
  std::vector<TraceEvent> events_;
  std::vector<TraceRange> ranges_;
  std::vector<std::string> notes_;
  std::vector<std::pair<std::int64_t, std::size_t>> calls_;  ///< correlation, event; sorted
  std::set<std::int64_t> started_;                           ///< correlations of the work of its steps
  std::unordered_map<std::int64_t, std::int64_t> asked_ns_;  ///< when calls began, by correlation
  std::int64_t last_asked_ns_ = 0;          ///< when the last work of its steps was asked for
  std::int64_t begin_ns_ = 0, end_ns_ = 0;  ///< of the steps and of the calls for their work
  bool has_all_ = true;                     ///< the scope leaves nothing out
  std::int64_t process_ = 0;
};

/// Devices have lower numbers; processes are numbered from here on, because both have tracks of their own.
inline constexpr std::int64_t kMostDevices = 256;
/// The number of a device: 1 of "cuda:1"; 0 where it has none.
std::int64_t device_number(std::string_view device);
/// Whether a device is a GPU: "cuda:0", or of a plan "h100-sxm"; the others are "cpu".
bool is_gpu(std::string_view device);

/// Numbers of devices, which differ: each has that of its name, or the next free one.
class DeviceNumbers {
 public:
  /// The number of `device` of that rank, given out when it is first asked for.
  std::int64_t of(std::string_view device, int rank = 0);

 private:
  std::map<std::pair<int, std::string>, std::int64_t> numbers_;
  std::set<std::int64_t> taken_;
};
/// Runs on a device: a kernel, a copy, a memset, a collective.
bool is_device_work(const TraceEvent& event);
/// Kernels and collectives.
bool is_kernel_event(const TraceEvent& event);

/// The number after `key`, such as `"address":`, in the JSON that a record keeps of an activity.
std::optional<std::int64_t> number_in(std::string_view extra, std::string_view key);
/// The multiprocessors of a device; 0 where the record does not say.
std::int64_t multiprocessors_of(const RunData& run, const std::string& device);

/// The place of a run among the ranks of its job.
struct RankPlace {
  std::int64_t rank = 0, ranks = 1;
};
/// As the record says, else as its largest communicator has it.
RankPlace rank_place_of(const RunData& run);

/// The address of an event of kind "memory", where the record has it.
std::optional<std::int64_t> address_of(const TraceEvent& event);

/// What a synchronization waits for, as CUPTI numbers it: 1 an event, 2 a stream for an event, 3 a stream, 4
/// the device, 0 not known.
int sync_kind(std::string_view name);

/// Where a copy goes, as CUPTI numbers it: 1 host to device, 2 device to host, 8 device to device, 10 peer to
/// peer, 9 host to host, 0 not known.
int copy_kind(std::string_view name);

}  // namespace rooflm::report
