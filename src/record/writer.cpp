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
/// Rows between two looks at the clock: often enough for any row, rare enough to cost nothing.
constexpr std::size_t kRowsPerLook = 4096;
/// Events per INSERT: there may be a million, and each statement has overhead.
constexpr std::size_t kEventsPerInsert = 64;

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
void bind_all(Statement& statement, const Values&... values) {
  (statement.bind(values), ...);
}

template <class... Values>
void insert(Statement& statement, const Values&... values) {
  bind_all(statement, values...);
  statement.run();
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
  insert(meta, std::string_view("schema"), std::to_string(kSchemaVersion));
  insert(meta, std::string_view("rooflm_version"), std::string_view(ROOFLM_VERSION));
  insert(meta, std::string_view("revision"), revision());
  insert(meta, std::string_view("command"), command);
  insert(meta, std::string_view("started_utc"), now_utc());
  insert(meta, std::string_view("epoch_utc_ns"), std::to_string(epoch_utc_ns));
  database.execute("COMMIT; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
}

/// A prepared statement for each table.
struct Inserts {
  explicit Inserts(const Database& database)
      : environment(database.prepare(insert_sql("environment", "key, value, unit", "INSERT OR REPLACE"))),
        ceiling(database.prepare(
            insert_sql("ceiling",
                       "device, what, level, dtype, threads, value, unit, ci_low, ci_high, samples, problem, "
                       "source, measured_utc"))),
        run(database.prepare(insert_sql("run", "label, kind, status"))),
        config(database.prepare(insert_sql("config", "run, key, value, type"))),
        run_status(database.prepare("UPDATE run SET status = ? WHERE id = ?")),
        fact(database.prepare(insert_sql("fact", "run, key, value, unit, text", "INSERT OR REPLACE"))),
        sample(database.prepare(insert_sql("sample", "run, step, phase, seconds, kind"))),
        outlier(database.prepare("UPDATE sample SET outlier = 1 WHERE run = ? AND step = ? AND phase = ?")),
        op(database.prepare(
            insert_sql("op",
                       "run, op, kind, class, kernel, name, phase, scope, dtype, shapes, micro_batch, "
                       "recomputed, matmul_flop, elementwise_flop, bytes_read, bytes_written, launches, "
                       "library, variant, workspace_bytes, lane"))),
        event(database.prepare(insert_sql("event", kEventColumns))),
        events(database.prepare(insert_sql("event", kEventColumns, "INSERT", kEventsPerInsert))),
        lane(database.prepare(insert_sql("lane", "run, lane, kind, device, stream, thread, name"))),
        activity_name(database.prepare(insert_sql("activity_name", "run, name, kind, text"))),
        stack(database.prepare(insert_sql("stack", "run, place, caller, frame"))),
        stack_frame(database.prepare(insert_sql("stack_frame", "run, frame, text"))),
        activity_extra(database.prepare(insert_sql("activity_extra", "run, extra, text"))),
        activity(database.prepare(insert_sql("activity", kActivityColumns))),
        activities(database.prepare(insert_sql("activity", kActivityColumns, "INSERT", kEventsPerInsert))),
        counter(database.prepare(
            insert_sql("counter", "run, phase, scope, name, value, unit, source, op, activity"))),
        gauge(database.prepare(insert_sql("gauge", "run, device, name, time_ns, value, unit"))),
        tensor(database.prepare(
            insert_sql("tensor", "run, tensor, name, role, dtype, shape, bytes, first_op, last_op, offset"))),
        memory_event(database.prepare(
            insert_sql("memory_event", "run, seq, op, tensor, bytes, live_bytes, time_ns, device, address"))),
        activity_work(database.prepare(insert_sql("activity_work", "run, activity, work"))),
        kernel_work(database.prepare(insert_sql(
            "kernel_work", "run, work, call, shapes, dtype, matmul_flop, needed_flop, bytes, far_bytes"))),
        prediction(database.prepare(insert_sql("prediction", "run, subject, quantity, value, unit, bound"))),
        cell(database.prepare(insert_sql("cell", "series, row, col, value, text, unit"))) {}

  static constexpr std::string_view kEventColumns = "run, step, op, start_ns, device_ns, wall_ns";
  static constexpr std::string_view kActivityColumns =
      "run, id, name, lane, start_ns, end_ns, correlation, bytes, step, op, extra";
  Statement environment, ceiling, run, config, run_status, fact, sample, outlier, op, event, events, lane,
      activity_name, stack, stack_frame, activity_extra, activity, activities, counter, gauge, tensor,
      memory_event, activity_work, kernel_work, prediction, cell;
};

}  // namespace

struct Writer::State {
  State(const std::filesystem::path& path, const std::string& command, bool overwrite)
      : file(path, overwrite), database(file.written(), Database::Mode::write, kPatience) {
    set_up(database, command,
           std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
               .count());
    inserts = std::make_unique<Inserts>(database);
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

  template <class Row, class Insert>
  void add_all(std::span<const Row> rows, const Insert& insert_row) {
    while (!rows.empty()) {
      const auto part = rows.first(std::min(rows.size(), kRowsPerLook));
      for (const Row& row : part) insert_row(row);
      rows = rows.subspan(part.size());
      commit_when_due();
    }
  }

  /// Writes rows of tables that may have a million: many per statement, then the rest one by one.
  template <class Row, class Bind>
  void add_many(std::span<const Row> rows, Statement& one, Statement& many, const Bind& bind_row) {
    while (rows.size() >= kEventsPerInsert) {
      for (const Row& row : rows.first(kEventsPerInsert)) bind_row(many, row);
      many.run();
      rows = rows.subspan(kEventsPerInsert);
      commit_when_due();
    }
    add_all(rows, [&](const Row& row) {
      bind_row(one, row);
      one.run();
    });
  }

  StackPlaces& places(std::int64_t run) {
    const auto found = stacks.find(run);
    if (found != stacks.end()) return found->second;
    return stacks
        .try_emplace(
            run,
            [this, run](std::int64_t frame, std::string_view text) {
              insert(inserts->stack_frame, run, frame, text);
            },
            [this, run](std::int64_t place, std::int64_t caller, std::int64_t frame) {
              insert(inserts->stack, run, place, caller, frame);
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
    if (is_new) insert(inserts->activity_extra, run, found->second, text);
    return found->second;
  }

  RecordFile file;
  Database database;
  std::map<std::int64_t, StackPlaces> stacks;  ///< by run
  std::unique_ptr<Inserts> inserts;            ///< made once the tables exist
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
  insert(meta, std::string_view("epoch_utc_ns"), value);
}

void Writer::add(const Environment& row) {
  insert(state_->inserts->environment, row.key, row.value, row.unit);
  state_->commit_when_due();
}

void Writer::add(const Ceiling& row) {
  state_->keep();
  insert(state_->inserts->ceiling, row.device, row.what, row.level, row.dtype, row.threads, row.value,
         row.unit, row.ci_low, row.ci_high, row.samples, row.problem, row.source, row.measured_utc);
  state_->commit_when_due();
}

void Writer::replace(const Ceiling& row) {
  Statement former = state_->database.prepare(
      "DELETE FROM ceiling WHERE device = ? AND what = ? AND level = ? AND dtype = ? AND threads = ?");
  insert(former, row.device, row.what, row.level, row.dtype, row.threads);
  add(row);
}

std::int64_t Writer::begin_run(const Run& r) {
  state_->keep();
  insert(state_->inserts->run, r.label, r.kind, r.status);
  const std::int64_t id = state_->database.last_insert_id();
  for (const auto& [key, value] : r.config.entries()) {
    std::visit([&, &key = key](
                   const auto& typed) { insert(state_->inserts->config, id, key, typed, type_name(typed)); },
               value);
  }
  state_->commit_when_due();
  return id;
}

void Writer::end_run(std::int64_t run, const std::string& status) {
  insert(state_->inserts->run_status, status, run);
  for (const Sample& sample : read_samples(state_->database, run)) {
    if (sample.outlier) insert(state_->inserts->outlier, run, sample.step, sample.phase);
  }
  state_->commit_when_due();
}

void Writer::add(std::int64_t run, const Fact& fact) {
  insert(state_->inserts->fact, run, fact.key, fact.value, fact.unit, fact.text);
  state_->commit_when_due();
}

void Writer::add(std::int64_t run, std::span<const Sample> rows) {
  state_->add_all(rows, [&](const Sample& r) {
    insert(state_->inserts->sample, run, r.step, r.phase, r.seconds, r.kind);
  });
}

void Writer::add(std::int64_t run, std::span<const Op> rows) {
  state_->add_all(rows, [&](const Op& r) {
    insert(state_->inserts->op, run, r.op, r.kind, r.op_class, r.kernel, r.name, r.phase, r.scope, r.dtype,
           r.shapes, r.micro_batch, r.recomputed, r.matmul_flop, r.elementwise_flop, r.bytes_read,
           r.bytes_written, r.launches, r.library, r.variant, r.workspace_bytes, r.lane);
  });
}

void Writer::add(std::int64_t run, std::span<const Event> rows) {
  state_->add_many(rows, state_->inserts->event, state_->inserts->events,
                   [run](Statement& statement, const Event& r) {
                     bind_all(statement, run, r.step, r.op, r.start_ns, r.device_ns, r.wall_ns);
                   });
}

void Writer::add(std::int64_t run, std::span<const Lane> rows) {
  state_->add_all(rows, [&](const Lane& r) {
    insert(state_->inserts->lane, run, r.lane, r.kind, r.device, r.stream, r.thread, r.name);
  });
}

void Writer::add(std::int64_t run, std::span<const ActivityName> rows) {
  state_->add_all(rows, [&](const ActivityName& r) {
    const bool is_stack = r.kind == "sample";
    insert(state_->inserts->activity_name, run, r.name, r.kind,
           is_stack ? std::to_string(state_->places(run).place_of(r.text)) : r.text);
  });
}

void Writer::add(std::int64_t run, std::span<const Activity> rows) {
  state_->add_many(rows, state_->inserts->activity, state_->inserts->activities,
                   [&](Statement& statement, const Activity& r) {
                     bind_all(statement, run, r.id, r.name, r.lane, r.start_ns, r.end_ns, r.correlation,
                              r.bytes, r.step, r.op, state_->extra_of(run, r.extra));
                   });
  for (const Activity& r : rows) {
    if (r.work) insert(state_->inserts->activity_work, run, r.id, *r.work);
  }
}

void Writer::add(std::int64_t run, std::span<const KernelWork> rows) {
  state_->add_all(rows, [&](const KernelWork& r) {
    insert(state_->inserts->kernel_work, run, r.work, r.call, r.shapes, r.dtype, r.matmul_flop, r.needed_flop,
           r.bytes, r.far_bytes);
  });
}

void Writer::add(std::int64_t run, std::span<const Counter> rows) {
  state_->add_all(rows, [&](const Counter& r) {
    insert(state_->inserts->counter, run, r.phase, r.scope, r.name, r.value, r.unit, r.source, r.op,
           r.activity);
  });
}

void Writer::add(std::int64_t run, std::span<const Gauge> rows) {
  state_->add_all(rows, [&](const Gauge& r) {
    insert(state_->inserts->gauge, run, r.device, r.name, r.time_ns, r.value, r.unit);
  });
}

void Writer::add(std::int64_t run, std::span<const Tensor> rows) {
  state_->add_all(rows, [&](const Tensor& r) {
    insert(state_->inserts->tensor, run, r.tensor, r.name, r.role, r.dtype, r.shape, r.bytes, r.first_op,
           r.last_op, r.offset);
  });
}

void Writer::add(std::int64_t run, std::span<const MemoryEvent> rows) {
  state_->add_all(rows, [&](const MemoryEvent& r) {
    insert(state_->inserts->memory_event, run, r.seq, r.op, r.tensor, r.bytes, r.live_bytes, r.time_ns,
           r.device, r.address);
  });
}

void Writer::add(std::int64_t run, std::span<const Prediction> rows) {
  state_->add_all(rows, [&](const Prediction& r) {
    insert(state_->inserts->prediction, run, r.subject, r.quantity, r.value, r.unit, r.bound);
  });
}

void Writer::replace(std::int64_t run, std::span<const Prediction> rows) {
  Statement former = state_->database.prepare("DELETE FROM prediction WHERE run = ?");
  insert(former, run);
  add(run, rows);
}

void Writer::add(std::span<const Cell> rows) {
  state_->keep();
  state_->add_all(rows, [&](const Cell& r) {
    insert(state_->inserts->cell, r.series, r.row, r.col, r.value, r.text, r.unit);
  });
}

void Writer::commit() { state_->commit(); }

void Writer::discard() {
  state_->discarded = true;
  state_->file.keep(false);
}

void Writer::finish() {
  if (state_->finished) throw std::logic_error("Writer::finish: the record is finished");
  Statement meta = state_->database.prepare(insert_sql("meta", "key, value"));
  insert(meta, std::string_view("finished_utc"), now_utc());
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
