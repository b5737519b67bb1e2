// A run of a program that is not ours, as it is put together from somebody's trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "foreign/block_tensors.h"
#include "foreign/steps_by.h"
#include "record/reader.h"
#include "record/rows.h"
#include "record/writer.h"

namespace rooflm::foreign {

/// What one kind of call within an op needs at least in a step; several are of the same op.
struct OpWork {
  std::int64_t op = 0;
  std::string phase{};
  std::string dtype{};     ///< of its matrix products; "" without any
  double needed_flop = 0;  ///< of them, of one call
  double bytes = 0;        ///< of one call
  double far_bytes = 0;    ///< of them, those that no cache can hold
  double calls = 1;
};

/// Rows in the making. Whatever a reader hands over is checked here; what cannot be true is left out and
/// counted.
class ForeignRun {
 public:
  /// The number of that kind and text; each once.
  std::int64_t name(std::string_view kind, std::string_view text);
  /// The lane of that key, made on its first use.
  std::int64_t lane(const std::string& key, const record::Lane& made);
  record::Lane& lane(std::int64_t number) { return lanes_[static_cast<std::size_t>(number)]; }
  /// Whether that lane is there already; its number.
  [[nodiscard]] std::optional<std::int64_t> find_lane(const std::string& key) const;

  /// Takes an activity, whose id is set here. False, and counted, for one whose times are impossible: an end
  /// before the start, or beyond 2^60 ns of the earliest plausible one.
  bool add(record::Activity activity);
  /// A run of kind "foreign" of a record, whose steps write() finds again. What its ops are is kept.
  static ForeignRun read_back(const record::Reader& record, const record::Run& of);
  /// Bytes taken (> 0) or given back (< 0), by that op where it is known.
  void add_memory(std::int64_t time_ns, std::int64_t bytes, std::optional<std::int64_t> address,
                  const std::string& device, std::optional<std::int64_t> op = std::nullopt);
  /// What was there before the trace began.
  void add_memory_before(std::int64_t bytes, std::int64_t address, const std::string& device);
  void add_environment(const std::string& key, const std::string& value) {
    environment_.push_back({key, value});
  }
  void add_fact(record::Fact fact) { facts_.push_back(std::move(fact)); }
  /// Devices of lanes, which are called cuda:0, become TYPE:0.
  void call_devices(std::string_view type);
  /// Facts "multiprocessors", of the first device that has some, and "multiprocessors cuda:1" of each that
  /// has another number of them.
  void add_multiprocessors(const std::map<std::int64_t, std::int64_t>& of_devices);
  /// Counts something that was left out or is odd: "events of category 'x'".
  void count(const std::string& what, std::size_t times = 1) { counted_[what] += times; }

  /// The ops of a step, which activities name. What the kernels of an op took in a step are its times then,
  /// and the first steps, where they take longer, are warm-up.
  void set_ops(std::vector<record::Op> ops) { ops_ = std::move(ops); }

  /// What its ops need, and what follows: the roofs.
  void set_work(std::vector<OpWork> work) { work_ = std::move(work); }
  [[nodiscard]] const std::vector<OpWork>& work() const { return work_; }
  /// What single kernels need, which activities name.
  void set_kernel_works(std::vector<record::KernelWork> works) { kernel_works_ = std::move(works); }
  [[nodiscard]] const std::vector<record::KernelWork>& kernel_works() const { return kernel_works_; }
  void set_predictions(std::vector<record::Prediction> rows) { predictions_ = std::move(rows); }
  /// What devices call themselves: "cuda:0" to "NVIDIA H200". The record names those that did something.
  std::map<std::string, std::string> device_names{};
  /// The first device that did something, "" where none did.
  [[nodiscard]] std::string device() const;

  /// What the device told of itself, or the program of it; times are those that are added.
  void add_gauge(record::Gauge gauge) { gauges_.push_back(std::move(gauge)); }
  /// Memory is that of one step, and its blocks are tensors of it: what is known of those that outlive it.
  void set_owners(BlockOwners owners) { owners_ = std::move(owners); }

  /// A sentence about the whole of it.
  void say(std::string text) { said_.push_back(std::move(text)); }

  std::string label{};
  std::string status = "success";
  StepsBy steps_by{};             ///< what its steps are
  std::int64_t epoch_utc_ns = 0;  ///< zero of the times that are added; 0 where it is not known
  std::string clock{};        ///< whose times can be compared exactly, "" where nobody knows: of one machine
  std::int64_t clock_ns = 0;  ///< zero of the times that are added, on that clock

  [[nodiscard]] std::vector<record::Activity>& activities() { return activities_; }
  [[nodiscard]] const record::ActivityName& name_of(const record::Activity& activity) const {
    return names_[static_cast<std::size_t>(activity.name)];
  }
  /// A kernel, copy or memset.
  [[nodiscard]] bool is_device_work(const record::Activity& activity) const;
  [[nodiscard]] bool is_empty() const {
    return activities_.empty() && memory_.empty() && memory_before_.empty();
  }
  [[nodiscard]] std::int64_t last_ns() const { return last_ns_; }

  /// Finds the steps, begins the clock near zero, and writes all of it as one run. Returns what was counted
  /// and found, in sentences.
  std::vector<std::string> write(record::Writer& writer);

 private:
  void check_correlations();
  void leave_out_other_clocks();
  void leave_out_late_ends();
  void begin_near_zero();
  void give_communication_its_step();
  void leave_out_known_steps(const std::vector<record::Sample>& known, std::vector<record::Sample>& timed);
  void add_up_memory();
  void add_phases(const std::map<std::int64_t, std::vector<record::Event>>& observed,
                  std::vector<record::Sample>& samples);
  void leave_out_roofs(const std::function<bool(const record::Op&)>& is_idle);
  std::vector<record::Event> events_of(std::vector<record::Sample>& samples);

  std::vector<record::Lane> lanes_;
  std::map<std::string, std::int64_t> lane_keys_;
  std::vector<record::ActivityName> names_;
  std::unordered_map<std::string, std::int64_t> name_numbers_;
  std::vector<record::Activity> activities_;
  std::vector<record::Op> ops_;
  std::vector<OpWork> work_;
  std::vector<record::KernelWork> kernel_works_;
  std::vector<record::Prediction> predictions_;
  std::vector<record::Gauge> gauges_;
  std::optional<BlockOwners> owners_;
  std::vector<record::MemoryEvent> memory_, memory_before_;
  std::vector<record::Environment> environment_;
  std::vector<record::Fact> facts_;
  std::map<std::string, std::size_t> counted_;
  std::vector<std::string> said_;
  std::int64_t last_ns_ = 0;
  bool is_read_back_ = false;
  std::vector<record::Tensor> tensors_;  ///< of one that is read back
  std::vector<record::Sample> timed_;    ///< of steps that were timed alone
};

/// What a range is called that the program itself calls step, beside the one of the record.
inline constexpr const char* kHostStep = "step, as the host saw it";
/// Members of `extra` of ranges, for who looks for steps again: the number of the name that one had before
/// it became a step, and the number of the step that a recorder's mark ended.
inline constexpr const char* kNameMember = "\"name\":";
inline constexpr const char* kMarkMember = "\"mark\":";

/// Finds the steps that run.steps_by asks for. Device work is of the step whose host range its call is in. A
/// step lasts from the end of the work of the step before to the end of its own; where that one is not known,
/// from when the host began it, or the device was done with what had been launched before. Adds a range
/// "step" for each and a fact "steps", and returns a sample for each.
std::vector<record::Sample> find_steps(ForeignRun& run);

/// Samples "plain" of the steps that were timed alone (inject::kTimedStep), which the recorder's Python
/// module tells of: as the host saw them. Their ranges are no steps of the device. Before find_steps.
std::vector<record::Sample> take_timed_steps(ForeignRun& run);

/// Leaves out those that ended before the device can have done a step's work, in half of what kernels of the
/// shortest traced step take: nobody waited for the device, and the host ran ahead. Returns how many. After
/// find_steps.
std::size_t leave_out_steps_ahead(ForeignRun& run, std::vector<record::Sample>& timed);

/// Names traced steps that are much longer than the median (ten times and more), in a sentence and a fact.
void name_slow_steps(ForeignRun& run, const std::vector<record::Sample>& samples);

/// How records name a copy: "copy host to device". `kind` as CUPTI numbers it (1 host to device, 2 device to
/// host, 8 device to device, 9 host to host, 10 to a peer).
std::string copy_text(std::int64_t kind);

/// Makes samples of the first steps warm-up, as long as they take 1.25 times the median and longer; at most
/// half of the steps.
void mark_warmup(std::vector<record::Sample>& samples);

}  // namespace rooflm::foreign
