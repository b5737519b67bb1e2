// Writes a run record while a run is in progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

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
  void add(std::int64_t run, std::span<const Sample> rows);
  void add(std::int64_t run, std::span<const Op> rows);
  void add(std::int64_t run, std::span<const Event> rows);
  void add(std::int64_t run, std::span<const Lane> rows);
  void add(std::int64_t run, std::span<const ActivityName> rows);
  void add(std::int64_t run, std::span<const Activity> rows);
  void add(std::int64_t run, std::span<const KernelWork> rows);
  void add(std::int64_t run, std::span<const Counter> rows);
  void add(std::int64_t run, std::span<const Gauge> rows);
  void add(std::int64_t run, std::span<const ExpertRows> rows);
  void add(std::int64_t run, std::span<const Tensor> rows);
  void add(std::int64_t run, std::span<const MemoryEvent> rows);
  void add(std::int64_t run, std::span<const Prediction> rows);
  void replace(std::int64_t run, std::span<const Prediction> rows);  ///< all of the run
  void add(std::span<const Cell> rows);
  void commit();
  /// Makes the destructor remove the file, whatever was added.
  void discard();
  /// Marks the record as complete and leaves a single file (no -wal).
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rooflm::record
