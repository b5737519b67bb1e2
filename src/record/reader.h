// Reads a run record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/database.h"
#include "record/read_rows.h"
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
  [[nodiscard]] std::optional<Fact> fact(std::int64_t run, const std::string& key) const;
  /// The rows of any table that belong to the run, in the order of the table (record/rows.h). None of a table
  /// that was added later.
  template <class Row>
  [[nodiscard]] std::vector<Row> rows(std::int64_t run) const {
    if (Table<Row>::kIsLater && !has_table(Table<Row>::kName)) return {};
    return rows_of<Row>(select(run, Table<Row>::kName, Table<Row>::names(), Table<Row>::kOrder));
  }
  [[nodiscard]] std::vector<OpTime> op_times(std::int64_t run) const;  ///< by op; only ops with events
  [[nodiscard]] std::vector<Cell> cells() const;

 private:
  struct State;

  [[nodiscard]] bool has_table(std::string_view name) const;
  /// The columns of a table's rows that belong to the run.
  [[nodiscard]] Statement select(std::int64_t run, std::string_view table, const std::string& columns,
                                 std::string_view order = "rowid") const;

  std::unique_ptr<State> state_;
};

/// With the outliers among them.
template <>
std::vector<Sample> Reader::rows<Sample>(std::int64_t run) const;
/// By step, then op.
template <>
std::vector<Event> Reader::rows<Event>(std::int64_t run) const;
/// With the whole stacks of samples.
template <>
std::vector<ActivityName> Reader::rows<ActivityName>(std::int64_t run) const;
/// With their details and their work, which are in tables of their own.
template <>
std::vector<Activity> Reader::rows<Activity>(std::int64_t run) const;

}  // namespace rooflm::record
