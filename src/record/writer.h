// Writing a run record while a run goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "record/rows.h"

namespace rooflm::record {

/// Creates a record and adds to it. Crash-safe: SQLite in WAL mode, and what was added becomes durable in
/// batches (`commit`, or by itself about once a second); a run that is killed leaves a record that opens and
/// says that it is partial (no 'finished_utc'). Not for several threads. Methods throw core::InputError,
/// naming the file, when it cannot be written (no permission, a full disk).
class Writer {
 public:
  /// Throws core::InputError when `path` exists, unless it is a run record and `overwrite`: then a new file
  /// takes its place when this one is finished.
  explicit Writer(std::filesystem::path path, const std::string& command, bool overwrite = false);
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  /// Keeps what was added, without 'finished_utc' when `finish` was not called; removes the file when nothing
  /// was measured: no run was begun, and there is no ceiling and no cell.
  ~Writer();

  /// Zero of the record's clock: times of events and activities are nanoseconds since then.
  [[nodiscard]] std::chrono::steady_clock::time_point epoch() const;

  /// Of a record whose times come from elsewhere: zero of its clock, in nanoseconds since 1970.
  void set_epoch(std::int64_t utc_ns);

  void add(const Environment& row);
  void add(const Ceiling& row);
  /// Returns the id to pass with the rows of this run.
  std::int64_t begin_run(const Run& run);
  void end_run(std::int64_t run, const std::string& status);
  void add(std::int64_t run, const Fact& fact);  ///< replaces a fact of that key
  void add(std::int64_t run, std::span<const Sample> rows);
  void add(std::int64_t run, std::span<const Op> rows);
  void add(std::int64_t run, std::span<const Event> rows);
  void add(std::int64_t run, std::span<const Lane> rows);
  void add(std::int64_t run, std::span<const ActivityName> rows);
  void add(std::int64_t run, std::span<const Activity> rows);
  void add(std::int64_t run, std::span<const Counter> rows);
  void add(std::int64_t run, std::span<const Gauge> rows);
  void add(std::int64_t run, std::span<const Tensor> rows);
  void add(std::int64_t run, std::span<const MemoryEvent> rows);
  void add(std::int64_t run, std::span<const Prediction> rows);
  void add(std::span<const Cell> rows);
  void commit();
  /// The file is removed when this goes, whatever was added.
  void discard();
  /// Says that the record is complete, and leaves one file (no -wal beside it).
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rooflm::record
