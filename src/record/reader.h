// Reads a run record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "record/rows.h"

namespace rooflm::record {

/// An open record. Older schemas are migrated in an in-memory copy; the file does not change. Throws
/// core::InputError, naming the file, if it is missing, truncated, of a newer schema (naming the rooflm that
/// reads it), locked for longer than two seconds, or not a run record.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path);
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader();

  [[nodiscard]] const std::filesystem::path& path() const;
  [[nodiscard]] std::string meta(const std::string& key) const;  ///< "" when absent
  [[nodiscard]] bool is_complete() const;                        ///< its writer finished
  [[nodiscard]] std::vector<Environment> environment() const;
  [[nodiscard]] std::vector<Ceiling> ceilings() const;
  [[nodiscard]] std::vector<Run> runs() const;  ///< except those of kind kRankRun
  /// The other ranks of a split run, in the order in which they were written.
  [[nodiscard]] std::vector<Run> rank_runs(std::int64_t run) const;
  [[nodiscard]] std::vector<Fact> facts(std::int64_t run) const;
  [[nodiscard]] std::optional<Fact> fact(std::int64_t run, const std::string& key) const;
  [[nodiscard]] std::vector<Sample> samples(std::int64_t run) const;   ///< by step, then phase
  [[nodiscard]] std::vector<Op> ops(std::int64_t run) const;           ///< in program order
  [[nodiscard]] std::vector<Event> events(std::int64_t run) const;     ///< by step, then op
  [[nodiscard]] std::vector<OpTime> op_times(std::int64_t run) const;  ///< by op; only ops with events
  [[nodiscard]] std::vector<Lane> lanes(std::int64_t run) const;
  [[nodiscard]] std::vector<ActivityName> activity_names(std::int64_t run) const;
  [[nodiscard]] std::vector<Activity> activities(std::int64_t run) const;      ///< as written
  [[nodiscard]] std::vector<KernelWork> kernel_works(std::int64_t run) const;  ///< by number
  [[nodiscard]] std::vector<Counter> counters(std::int64_t run) const;
  [[nodiscard]] std::vector<Gauge> gauges(std::int64_t run) const;            ///< as written
  [[nodiscard]] std::vector<ExpertRows> expert_rows(std::int64_t run) const;  ///< as written
  [[nodiscard]] std::vector<Tensor> tensors(std::int64_t run) const;
  [[nodiscard]] std::vector<MemoryEvent> memory_events(std::int64_t run) const;
  [[nodiscard]] std::vector<Prediction> predictions(std::int64_t run) const;
  [[nodiscard]] std::vector<Cell> cells() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rooflm::record
