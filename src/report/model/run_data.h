// Everything that reports need of one run, loaded once from its record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "record/reader.h"
#include "record/rows.h"

namespace rooflm::report {

/// An op with its measured times and its roof.
struct TimedOp {
  record::Op op;
  std::optional<record::OpTime> time;  ///< absent when no step was observed
  std::optional<double> roof_s;        ///< prediction "roof_s" of "op:N"
  std::string bound;                   ///< which roof that is
  std::optional<double> alone_s;       ///< wall time where it was submitted alone and waited for (kAloneWall)
  std::string block;                   ///< as block_of
  std::string part;                    ///< as part_of

  /// The wall time to show: as Work::shown_wall_s.
  [[nodiscard]] std::optional<double> shown_wall_s() const {
    return alone_s || !time ? alone_s : time->wall_s;
  }
  /// Nothing where it is 0: what the op moves may be in a cache whose bandwidth is not known.
  [[nodiscard]] std::optional<double> shown_roof_s() const {
    return roof_s.value_or(0) != 0 ? roof_s : std::nullopt;
  }
};

/// What an execution of a kernel of a foreign program has to do, and its roof.
struct KernelPrice {
  record::KernelWork work;
  std::optional<double> roof_s;  ///< prediction "roof_s" of "work:N"
  std::string bound;
};

/// Whether it sends something to another rank, or waits for it.
inline bool is_communication(const TimedOp& op) { return op.op.op_class == "collective"; }

class TracedKernels;

/// Cached results for all views of a run (traced_kernels). A copy of a run starts with an empty cache,
/// because the cache points into the run.
struct KeptKernels {
  KeptKernels() = default;
  KeptKernels(const KeptKernels& /*other*/) noexcept {}
  KeptKernels(KeptKernels&& /*other*/) noexcept {}
  KeptKernels& operator=(const KeptKernels& other) noexcept {
    if (this != &other) kernels.reset();
    return *this;
  }
  KeptKernels& operator=(KeptKernels&& /*other*/) noexcept {
    kernels.reset();
    return *this;
  }
  ~KeptKernels() = default;
  mutable std::shared_ptr<const TracedKernels> kernels{};
  mutable std::size_t activities = 0, ops = 0;  ///< how many there were
};

struct RunData {
  std::size_t file = 0;  ///< index into RecordSet::files
  record::Run run;
  std::vector<record::Fact> facts;
  std::vector<record::Sample> samples;
  std::vector<TimedOp> ops;
  std::vector<record::Event> events;
  std::vector<record::Tensor> tensors;
  std::vector<record::MemoryEvent> memory_events;
  std::vector<record::Prediction> predictions;
  std::vector<KernelPrice> kernel_prices;  ///< by number
  std::vector<record::Counter> counters;
  std::vector<record::Gauge> gauges;
  std::vector<record::ExpertRows> expert_rows;
  std::vector<record::Lane> lanes;
  std::vector<record::ActivityName> activity_names;
  std::vector<record::Activity> activities;
  std::vector<record::Activity> stack_samples;  ///< activities of kind "sample", which are in no other list
  std::vector<record::Ceiling> ceilings;        ///< of the device that it ran on
  /// Where records of other ranks of the job are there: from when a collective's kernel, by its start,
  /// transferred, because the last rank had begun it.
  std::map<std::int64_t, std::int64_t> transfer_from_ns;
  std::vector<RunData> other_ranks;  ///< of a split step: some of its steps (record::kRankRun)
  KeptKernels kept;                  ///< of the activities at the first request
  bool is_part = false;              ///< a filter removed some of its phases, scopes or ops (filter.h)

  /// A field of the configuration as text, "" when the run does not have it.
  [[nodiscard]] std::string setting(std::string_view key) const { return run.config.text(key); }
  /// nullptr when the run does not have that fact.
  [[nodiscard]] const record::Fact* fact(std::string_view key) const;
  /// The number of that fact, or nothing.
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  /// Sentence of that fact; "" when there is none.
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] const record::Prediction* prediction(std::string_view subject,
                                                     std::string_view quantity) const;
  /// Seconds of one phase ("step" is the whole step) in samples of that kind, in the order of the steps.
  [[nodiscard]] std::vector<double> seconds(std::string_view phase, std::string_view kind = "plain") const;
  /// The op of that number; nullptr for -1 (persistent tensors) and numbers that no op has.
  [[nodiscard]] const TimedOp* find_op(std::int64_t op) const;
  /// The price of that kernel; nullptr where it is not known.
  [[nodiscard]] const KernelPrice* price_of(const record::Activity& kernel) const;
  /// Whether a step was observed: ops have times.
  [[nodiscard]] bool has_op_times() const;
};

/// Calls `visit` with each list of rows that a record's table has for the run.
template <class Visit>
void visit_rows(RunData& run, const Visit& visit) {
  visit(run.facts);
  visit(run.samples);
  visit(run.events);
  visit(run.tensors);
  visit(run.memory_events);
  visit(run.predictions);
  visit(run.counters);
  visit(run.gauges);
  visit(run.expert_rows);
  visit(run.lanes);
  visit(run.activity_names);
  visit(run.activities);
}

struct RecordFile {
  std::string name{};  ///< as it was given
  std::string rooflm_version{}, command{}, started_utc{}, finished_utc{}, revision{};
  std::int64_t epoch_utc_ns = 0;  ///< zero of the record's clock, since 1970; 0 where it is not known
  bool is_complete = false;
  std::vector<record::Environment> environment{};
  std::vector<record::Ceiling> ceilings{};
  std::vector<record::Cell> cells{};
};

/// The records that one report is about; runs of all files in the order of the files.
struct RecordSet {
  std::vector<RecordFile> files;
  std::vector<RunData> runs;
};

/// The heading of shares of the time in kernels of all ops: "of kernels", or "of shown" for a filtered step.
inline const char* share_title(const RunData& run) { return run.is_part ? "of shown" : "of kernels"; }

/// Whether the run was on a GPU, of which the host's clock and resident memory say nothing.
bool is_on_gpu(const RunData& run);

/// The block of a scope, layers added up: "h.3/attention/qk" is of "attention", "ln_f" of "ln_f".
std::string block_of(std::string_view scope);
/// The part of a scope, layers added up: "h.3/attention/qk" is "attention/qk".
std::string part_of(std::string_view scope);
/// The layer of a scope: 3 of "h.3/attention/qk"; nothing outside layers.
std::optional<std::int64_t> layer_of(std::string_view scope);

/// Everything of one run; without the ceilings of the record. Throws core::InputError as record::Reader does.
RunData load_run(const record::Reader& reader, const record::Run& run, std::size_t file = 0);

/// Reads all files. Throws core::InputError as record::Reader does.
RecordSet load(std::span<const std::filesystem::path> files);

}  // namespace rooflm::report
