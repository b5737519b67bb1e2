// Writes a run record while a run is in progress.
#include "record/writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>

#include "core/error.h"
#include "record/database.h"
#include "record/record_file.h"
#include "record/samples.h"
#include "record/schema.h"
#include "record/stack_places.h"

namespace rooflm::record {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBatchTime{1};
/// Between two merges of the -wal: what is killed leaves a file that says something without it, too.
constexpr std::chrono::seconds kMergeTime{5};
/// Rows per INSERT: there may be a million, and each statement has overhead.
constexpr std::size_t kRowsPerInsert = 64;

std::string now_utc() { return fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr))); }

/// "INSERT INTO table (columns) VALUES (?, ...), ...", for `rows` rows at once.
std::string insert_sql(std::string_view table, std::string_view columns, std::string_view verb = "INSERT",
                       std::size_t rows = 1) {
  std::string places = "(?";
  for (const char c : columns) {
    if (c == ',') places += ", ?";
  }
  places += ")";
  std::string all = places;
  for (std::size_t row = 1; row < rows; ++row) all += ", " + places;
  return fmt::format("{} INTO {} ({}) VALUES {}", verb, table, columns, all);
}

template <class... Values>
void run_with(Statement& statement, const Values&... values) {
  (statement.bind(values), ...);
  statement.run();
}

template <class Row>
void bind_row(Statement& statement, const Row& row) {
  Table<Row>::visit(row, [&](const auto& value) { statement.bind(value); });
}

std::string_view type_name(const std::string& /*value*/) { return "text"; }
std::string_view type_name(std::int64_t /*value*/) { return "integer"; }
std::string_view type_name(double /*value*/) { return "number"; }
std::string_view type_name(bool /*value*/) { return "flag"; }

/// Database page size. Each of more than twenty tables takes at least one page, so larger pages leave a small
/// record mostly empty, and make a large one neither smaller nor faster to read.
constexpr int kPageBytes = 4096;

/// Creates the schema before the switch to WAL, so the file identifies itself from the start. It need not
/// survive a power cut: synchronisation starts with the first batch.
void set_up(const Database& database, const std::string& command, std::int64_t epoch_utc_ns) {
  database.execute(
      fmt::format("PRAGMA page_size = {}; PRAGMA synchronous = OFF; PRAGMA application_id = {}; BEGIN; {}; "
                  "PRAGMA user_version = {};",
                  kPageBytes, kApplicationId, schema_sql(), kSchemaVersion));
  Statement meta = database.prepare(insert_sql("meta", "key, value"));
  run_with(meta, std::string_view("schema"), std::to_string(kSchemaVersion));
  run_with(meta, std::string_view("rooflm_version"), std::string_view(ROOFLM_VERSION));
  run_with(meta, std::string_view("revision"), revision());
  run_with(meta, std::string_view("command"), command);
  run_with(meta, std::string_view("started_utc"), now_utc());
  run_with(meta, std::string_view("epoch_utc_ns"), std::to_string(epoch_utc_ns));
  database.execute("COMMIT; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
}

}  // namespace

struct Writer::State {
  State(const std::filesystem::path& path, const std::string& command, bool overwrite)
      : file(path, overwrite), database(file.written(), Database::Mode::write, kPatience) {
    set_up(database, command,
           std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
               .count());
    // A transaction is always open, so another process that wants to write sees the lock.
    begin();
  }

  void begin() {
    database.execute("BEGIN IMMEDIATE");
    begun = Clock::now();
  }

  void end() {
    // SQLite took the rows back when it had no memory for them, and somebody has caught that.
    if (!database.is_in_transaction()) throw std::bad_alloc();
    database.execute("COMMIT");
  }

  void commit() {
    end();
    if (Clock::now() - merged >= kMergeTime) {
      database.execute("PRAGMA wal_checkpoint(PASSIVE)");
      merged = Clock::now();
    }
    begin();
  }

  void commit_when_due() {
    if (Clock::now() - begun >= kBatchTime) commit();
  }

  /// The statement that inserts `count` rows, prepared once.
  Statement& insert_of(std::string_view table, std::string_view columns, std::size_t count = 1,
                       std::string_view verb = "INSERT") {
    const std::pair key(table, count);
    const auto found = inserts.find(key);
    if (found != inserts.end()) return found->second;
    return inserts.try_emplace(key, database.prepare(insert_sql(table, columns, verb, count))).first->second;
  }

  /// A row of a table that does not belong to a run.
  template <class Row>
  void add_row(const Row& row, std::string_view verb = "INSERT") {
    Statement& statement = insert_of(Table<Row>::kName, Table<Row>::names(), 1, verb);
    bind_row(statement, row);
    statement.run();
  }

  StackPlaces& places(std::int64_t run) {
    const auto found = stacks.find(run);
    if (found != stacks.end()) return found->second;
    return stacks
        .try_emplace(
            run,
            [this, run](std::int64_t frame, std::string_view text) {
              run_with(insert_of("stack_frame", "run, frame, text"), run, frame, text);
            },
            [this, run](std::int64_t place, std::int64_t caller, std::int64_t frame) {
              run_with(insert_of("stack", "run, place, caller, frame"), run, place, caller, frame);
            })
        .first->second;
  }

  /// Called when something was measured: from now on the file is kept.
  void keep() { file.keep(true); }

  /// Ends the last transaction and merges the -wal into the file; false if a reader prevents it.
  bool close_transaction() {
    end();
    try {
      Statement mode = database.prepare("PRAGMA journal_mode = DELETE");
      const bool is_one_file = mode.step() && mode.text(0) == "delete";
      while (mode.step()) {  // the mode is written after its row: a full disk shows here
      }
      return is_one_file;
    } catch (const LockedFile&) {
      return false;
    }
  }

  /// The id of an activity's extra text, which is written once per run; nothing for an empty text.
  std::optional<std::int64_t> extra_of(std::int64_t run, const std::string& text) {
    if (text.empty()) return std::nullopt;
    auto& known = extras[run];
    const auto [found, is_new] = known.try_emplace(text, static_cast<std::int64_t>(known.size()));
    if (is_new) run_with(insert_of("activity_extra", "run, extra, text"), run, found->second, text);
    return found->second;
  }

  RecordFile file;
  Database database;
  std::map<std::int64_t, StackPlaces> stacks;                             ///< by run
  std::map<std::pair<std::string_view, std::size_t>, Statement> inserts;  ///< by table and count of rows
  std::map<std::int64_t, std::unordered_map<std::string, std::int64_t>> extras;  ///< by run
  Clock::time_point epoch = Clock::now();
  Clock::time_point begun;
  Clock::time_point merged = Clock::now();
  bool finished = false;
  bool discarded = false;
};

Writer::Writer(const std::filesystem::path& path, const std::string& command, bool overwrite)
    : state_(std::make_unique<State>(path, command, overwrite)) {}

Writer::Writer(Writer&&) noexcept = default;

Writer& Writer::operator=(Writer&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Writer::~Writer() {
  if (state_ == nullptr || state_->finished) return;
  if (state_->discarded) return;
  try {
    state_->close_transaction();
  } catch (...) {  // NOLINT(bugprone-empty-catch): nobody to tell; committed batches remain
  }
}

std::chrono::steady_clock::time_point Writer::epoch() const { return state_->epoch; }

void Writer::set_epoch(std::int64_t utc_ns) {
  Statement meta = state_->database.prepare(insert_sql("meta", "key, value", "INSERT OR REPLACE"));
  const std::string value = std::to_string(utc_ns);
  run_with(meta, std::string_view("epoch_utc_ns"), value);
}

void Writer::add(const Environment& row) {
  state_->add_row(row, "INSERT OR REPLACE");
  state_->commit_when_due();
}

void Writer::add(const Ceiling& row) {
  state_->keep();
  state_->add_row(row);
  state_->commit_when_due();
}

void Writer::replace(const Ceiling& row) {
  Statement former = state_->database.prepare(
      "DELETE FROM ceiling WHERE device = ? AND what = ? AND level = ? AND dtype = ? AND threads = ?");
  run_with(former, row.device, row.what, row.level, row.dtype, row.threads);
  add(row);
}

std::int64_t Writer::begin_run(const Run& r) {
  state_->keep();
  state_->add_row(r);
  const std::int64_t id = state_->database.last_insert_id();
  for (const auto& [key, value] : r.config.entries()) {
    std::visit(
        [&, &key = key](const auto& typed) {
          run_with(state_->insert_of("config", "run, key, value, type"), id, key, typed, type_name(typed));
        },
        value);
  }
  state_->commit_when_due();
  return id;
}

void Writer::end_run(std::int64_t run, const std::string& status) {
  Statement changed = state_->database.prepare("UPDATE run SET status = ? WHERE id = ?");
  run_with(changed, status, run);
  Statement outlier =
      state_->database.prepare("UPDATE sample SET outlier = 1 WHERE run = ? AND step = ? AND phase = ?");
  for (const Sample& sample : read_samples(state_->database, run)) {
    if (sample.outlier) run_with(outlier, run, sample.step, sample.phase);
  }
  state_->commit_when_due();
}

void Writer::add(std::int64_t run, const Fact& fact) {
  Statement& statement =
      state_->insert_of(Table<Fact>::kName, "run, " + Table<Fact>::names(), 1, "INSERT OR REPLACE");
  statement.bind(run);
  bind_row(statement, fact);
  statement.run();
  state_->commit_when_due();
}

/// Many rows per statement, then the rest one by one.
void Writer::insert(std::int64_t run, std::string_view table, const std::string& columns, std::size_t rows,
                    const Bind& bind) {
  for (std::size_t row = 0; row < rows;) {
    const std::size_t count = rows - row >= kRowsPerInsert ? kRowsPerInsert : 1;
    Statement& statement = state_->insert_of(table, "run, " + columns, count);
    for (const std::size_t end = row + count; row < end; ++row) {
      statement.bind(run);
      bind(statement, row);
    }
    statement.run();
    if (count > 1) state_->commit_when_due();
  }
  state_->commit_when_due();
}

void Writer::add_names(std::int64_t run, std::span<const ActivityName> rows) {
  std::vector<ActivityName> stored(rows.begin(), rows.end());
  for (ActivityName& row : stored) {
    if (row.kind == "sample") row.text = std::to_string(state_->places(run).place_of(row.text));
  }
  add_rows(run, std::span<const ActivityName>(stored));
}

void Writer::add_activities(std::int64_t run, std::span<const Activity> rows) {
  insert(run, Table<Activity>::kName, Table<Activity>::names() + ", extra", rows.size(),
         [&](Statement& statement, std::size_t i) {
           bind_row(statement, rows[i]);
           statement.bind(state_->extra_of(run, rows[i].extra));
         });
  Statement& works = state_->insert_of("activity_work", "run, activity, work");
  for (const Activity& row : rows) {
    if (row.work) run_with(works, run, row.id, *row.work);
  }
}

void Writer::replace(std::int64_t run, std::span<const Prediction> rows) {
  Statement former = state_->database.prepare("DELETE FROM prediction WHERE run = ?");
  run_with(former, run);
  add(run, rows);
}

void Writer::add(std::span<const Cell> rows) {
  state_->keep();
  for (const Cell& row : rows) {
    state_->add_row(row);
    state_->commit_when_due();
  }
}

void Writer::commit() { state_->commit(); }

void Writer::discard() {
  state_->discarded = true;
  state_->file.keep(false);
}

void Writer::finish() {
  if (state_->finished) throw std::logic_error("Writer::finish: the record is finished");
  Statement meta = state_->database.prepare(insert_sql("meta", "key, value"));
  run_with(meta, std::string_view("finished_utc"), now_utc());
  const bool is_one_file = state_->close_transaction();
  state_->finished = true;
  state_->keep();
  if (is_one_file) return state_->file.publish();
  // A reader keeps the -wal in use: the record is complete, but it cannot replace the other file.
  if (state_->file.replaces()) {
    throw core::InputError(fmt::format("another process reads {}: the finished record stays there",
                                       state_->file.written().string()));
  }
}

}  // namespace rooflm::record
