// Writes a run record while a run is in progress.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "record/database.h"
#include "record/rows.h"

namespace rooflm::record {

/// Creates a record and adds to it. Crash-safe: SQLite in WAL mode; added rows become durable in batches
/// (`commit`, or automatically about once a second). A run that is killed leaves a record that opens and is
/// marked as partial (no 'finished_utc'). Not thread-safe. Methods throw core::InputError, naming the file,
/// if it cannot be written (no permission, disk full).
class Writer {
 public:
  /// Throws core::InputError if `path` exists, unless it is a run record and `overwrite` is set; the new file
  /// then replaces it when it is finished.
  explicit Writer(const std::filesystem::path& path, const std::string& command, bool overwrite = false);
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  /// Keeps what was added, without 'finished_utc' unless `finish` was called. Removes the file if it contains
  /// no run, no ceiling and no cell.
  ~Writer();

  /// Zero of the record's clock: events and activities count nanoseconds from it.
  [[nodiscard]] std::chrono::steady_clock::time_point epoch() const;

  /// For a record of times measured elsewhere: zero of its clock, in nanoseconds since 1970.
  void set_epoch(std::int64_t utc_ns);

  void add(const Environment& row);
  void add(const Ceiling& row);
  void replace(const Ceiling& row);  ///< that of the same device, thing, level, dtype and threads
  /// Returns the id to pass with the rows of this run.
  std::int64_t begin_run(const Run& run);
  void end_run(std::int64_t run, const std::string& status);
  void add(std::int64_t run, const Fact& fact);  ///< replaces a fact with the same key
  /// Rows of any table that belong to a run.
  template <std::ranges::contiguous_range Rows>
  void add(std::int64_t run, const Rows& rows) {
    using Row = std::ranges::range_value_t<Rows>;
    if constexpr (std::is_same_v<Row, Activity>) {
      add_activities(run, rows);
    } else if constexpr (std::is_same_v<Row, ActivityName>) {
      add_names(run, rows);
    } else {
      add_rows(run, std::span<const Row>(rows));
    }
  }
  void replace(std::int64_t run, std::span<const Prediction> rows);  ///< all of the run
  void add(std::span<const Cell> rows);
  void commit();
  /// Makes the destructor remove the file, whatever was added.
  void discard();
  /// Marks the record as complete and leaves a single file (no -wal).
  void finish();

 private:
  struct State;
  /// Binds the columns of the row at an index.
  using Bind = std::function<void(Statement&, std::size_t)>;

  template <class Row>
  void add_rows(std::int64_t run, std::span<const Row> rows) {
    insert(run, Table<Row>::kName, Table<Row>::names(), rows.size(),
           [&](Statement& statement, std::size_t i) {
             Table<Row>::visit(rows[i], [&](const auto& value) { statement.bind(value); });
           });
  }
  void insert(std::int64_t run, std::string_view table, const std::string& columns, std::size_t rows,
              const Bind& bind);
  void add_activities(std::int64_t run, std::span<const Activity> rows);
  void add_names(std::int64_t run, std::span<const ActivityName> rows);
  std::unique_ptr<State> state_;
};

}  // namespace rooflm::record
