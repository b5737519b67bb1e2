// Reads a run record.
#include "record/reader.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "record/database.h"
#include "record/migrate.h"
#include "record/op_times.h"
#include "record/open_record.h"
#include "record/samples.h"
#include "record/schema.h"
#include "record/stack_places.h"

namespace rooflm::record {
namespace {

/// Returns the columns of a row one after the other.
class Columns {
 public:
  explicit Columns(const Statement& row) : row_(&row) {}
  Columns& operator>>(std::int64_t& value) { return value = row_->integer(next_++), *this; }
  Columns& operator>>(int& value) { return value = static_cast<int>(row_->integer(next_++)), *this; }
  Columns& operator>>(bool& value) { return value = row_->integer(next_++) != 0, *this; }
  Columns& operator>>(double& value) { return value = row_->number(next_++), *this; }
  Columns& operator>>(std::string& value) { return value = row_->text(next_++), *this; }
  Columns& operator>>(std::optional<double>& value) {
    if (!row_->is_null(next_)) value = row_->number(next_);
    return ++next_, *this;
  }
  Columns& operator>>(std::optional<std::int64_t>& value) {
    if (!row_->is_null(next_)) value = row_->integer(next_);
    return ++next_, *this;
  }

 private:
  const Statement* row_;
  int next_ = 0;
};

/// All result rows of `statement`, each decoded by `read(columns, row)`. Reserves room for `expected` rows.
template <class Row, class Read>
std::vector<Row> rows_of(Statement statement, const Read& read, std::size_t expected = 0) {
  std::vector<Row> rows;
  rows.reserve(expected);
  while (statement.step()) {
    Columns columns(statement);
    read(columns, rows.emplace_back());
  }
  return rows;
}

/// The same for one run, the only parameter.
template <class Row, class Read>
std::vector<Row> rows_of(Statement statement, std::int64_t run, const Read& read) {
  statement.bind(run);
  return rows_of<Row>(std::move(statement), read);
}

/// A value of the table `config`, whose column type varies by row.
Config::Value config_value(const Statement& row, int column, const std::string& type) {
  if (type == "integer") return row.integer(column);
  if (type == "number") return row.number(column);
  if (type == "flag") return row.integer(column) != 0;
  return row.text(column);
}

Config config_of(const Database& database, std::int64_t run) {
  Config config;
  Statement rows = database.prepare("SELECT key, type, value FROM config WHERE run = ?");
  rows.bind(run);
  while (rows.step()) config.set(rows.text(0), config_value(rows, 2, rows.text(1)));
  return config;
}

void read_op(Columns& c, Op& r) {
  c >> r.op >> r.kind >> r.op_class >> r.kernel >> r.name >> r.phase >> r.scope >> r.dtype >> r.shapes >>
      r.micro_batch >> r.recomputed >> r.matmul_flop >> r.elementwise_flop >> r.bytes_read >>
      r.bytes_written >> r.launches >> r.library >> r.variant >> r.workspace_bytes >> r.lane;
}

void read_ceiling(Columns& c, Ceiling& r) {
  c >> r.device >> r.what >> r.level >> r.dtype >> r.threads >> r.value >> r.unit >> r.ci_low >> r.ci_high >>
      r.samples >> r.problem >> r.source >> r.measured_utc;
}

void read_tensor(Columns& c, Tensor& r) {
  c >> r.tensor >> r.name >> r.role >> r.dtype >> r.shape >> r.bytes >> r.first_op >> r.last_op >> r.offset;
}

}  // namespace

struct Reader::State {
  /// The rowid range of a run in a table without index: its rows were written consecutively.
  struct RowRange {
    std::int64_t first = 0;
    std::int64_t last = -1;
  };
  using RowRanges = std::map<std::int64_t, RowRange>;

  explicit State(const std::filesystem::path& given)
      : path(given), database(open_record(given, kSchemaVersion, migrations())) {}

  [[nodiscard]] std::vector<Run> runs_of(Statement statement) const;

  /// Scans `table` once for all runs of a sweep; skips the scan if there is only one run.
  RowRange rows_of_run(const std::string& table, std::int64_t run) {
    if (database->query_integer("SELECT COUNT(*) FROM run") <= 1) {
      return {.first = 0, .last = std::numeric_limits<std::int64_t>::max()};
    }
    const auto [ranges, is_unknown] = row_ranges.try_emplace(table);
    if (is_unknown) {
      Statement rows = database->prepare("SELECT rowid, run FROM " + table + " ORDER BY rowid");
      while (rows.step()) {
        const auto [range, is_new] =
            ranges->second.try_emplace(rows.integer(1), RowRange{rows.integer(0), 0});
        range->second.last = rows.integer(0);
      }
    }
    const auto found = ranges->second.find(run);
    return found == ranges->second.end() ? RowRange{} : found->second;
  }

  /// An estimate of the rows of all runs in `table`, from their rowids; too low if a record has unusual ones.
  [[nodiscard]] std::size_t most_rows(const std::string& table) const {
    constexpr std::int64_t kMost = std::int64_t{1} << 22U;
    const std::int64_t last = database->query_integer("SELECT MAX(rowid) FROM " + table);
    return static_cast<std::size_t>(std::clamp<std::int64_t>(last, 0, kMost));
  }

  /// Early records of a schema lack tables that were added within it.
  [[nodiscard]] bool has_table(const std::string& name) const {
    Statement found =
        database->prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '" + name + "'");
    return found.step();
  }

  /// `columns` of the rows of a run, in the order in which they were written.
  Statement select_of_run(const std::string& table, const std::string& columns, std::int64_t run) {
    const RowRange range = rows_of_run(table, run);
    Statement statement = database->prepare("SELECT " + columns + " FROM " + table +
                                            " WHERE run = ? AND rowid BETWEEN ? AND ? ORDER BY rowid");
    statement.bind(run);
    statement.bind(range.first);
    statement.bind(range.last);
    return statement;
  }

  std::filesystem::path path;
  std::unique_ptr<Database> database;
  std::map<std::string, RowRanges> row_ranges;  ///< by table
};

Reader::Reader(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) {}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;
Reader::~Reader() = default;

const std::filesystem::path& Reader::path() const { return state_->path; }

std::string Reader::meta(const std::string& key) const {
  Statement statement = state_->database->prepare("SELECT value FROM meta WHERE key = ?");
  statement.bind(key);
  return statement.step() ? statement.text(0) : "";
}

bool Reader::is_complete() const { return !meta("finished_utc").empty(); }

std::vector<Environment> Reader::environment() const {
  return rows_of<Environment>(
      state_->database->prepare("SELECT key, value, unit FROM environment ORDER BY key"),
      [](Columns& c, Environment& r) { c >> r.key >> r.value >> r.unit; });
}

std::vector<Ceiling> Reader::ceilings() const {
  return rows_of<Ceiling>(
      state_->database->prepare(
          "SELECT device, what, level, dtype, threads, value, unit, ci_low, ci_high, samples, "
          "problem, source, measured_utc FROM ceiling ORDER BY id"),
      read_ceiling);
}

std::vector<Run> Reader::State::runs_of(Statement statement) const {
  auto runs = rows_of<Run>(std::move(statement),
                           [](Columns& c, Run& r) { c >> r.id >> r.label >> r.kind >> r.status; });
  for (Run& run : runs) run.config = config_of(*database, run.id);
  return runs;
}

std::vector<Run> Reader::runs() const {
  return state_->runs_of(
      state_->database->prepare("SELECT id, label, kind, status FROM run WHERE kind <> 'rank' ORDER BY id"));
}

std::vector<Run> Reader::rank_runs(std::int64_t run) const {
  Statement statement = state_->database->prepare(
      "SELECT id, label, kind, status FROM run JOIN fact ON fact.run = run.id AND fact.key = 'rank_of' "
      "WHERE kind = 'rank' AND fact.value = ? ORDER BY id");
  statement.bind(static_cast<double>(run));
  return state_->runs_of(std::move(statement));
}

std::vector<Fact> Reader::facts(std::int64_t run) const {
  return rows_of<Fact>(
      state_->database->prepare("SELECT key, value, unit, text FROM fact WHERE run = ? ORDER BY key"), run,
      [](Columns& c, Fact& r) { c >> r.key >> r.value >> r.unit >> r.text; });
}

std::optional<Fact> Reader::fact(std::int64_t run, const std::string& key) const {
  Statement statement =
      state_->database->prepare("SELECT key, value, unit, text FROM fact WHERE run = ? AND key = ?");
  statement.bind(run);
  statement.bind(key);
  if (!statement.step()) return std::nullopt;
  Fact fact;
  Columns(statement) >> fact.key >> fact.value >> fact.unit >> fact.text;
  return fact;
}

std::vector<Sample> Reader::samples(std::int64_t run) const { return read_samples(*state_->database, run); }

std::vector<Op> Reader::ops(std::int64_t run) const {
  return rows_of<Op>(
      state_->database->prepare(
          "SELECT op, kind, class, kernel, name, phase, scope, dtype, shapes, micro_batch, recomputed, "
          "matmul_flop, "
          "elementwise_flop, bytes_read, bytes_written, launches, library, variant, workspace_bytes, "
          "lane FROM op "
          "WHERE run = ? ORDER BY op"),
      run, read_op);
}

std::vector<Event> Reader::events(std::int64_t run) const {
  auto events = rows_of<Event>(
      state_->select_of_run("event", "step, op, start_ns, device_ns, wall_ns", run),
      [](Columns& c, Event& r) { c >> r.step >> r.op >> r.start_ns >> r.device_ns >> r.wall_ns; });
  const auto by_step_and_op = [](const Event& a, const Event& b) {
    return std::pair(a.step, a.op) < std::pair(b.step, b.op);
  };
  // They are written in this order, so sorting is rarely needed.
  if (!std::ranges::is_sorted(events, by_step_and_op)) std::ranges::stable_sort(events, by_step_and_op);
  return events;
}

std::vector<OpTime> Reader::op_times(std::int64_t run) const { return summarise_ops(events(run)); }

std::vector<Lane> Reader::lanes(std::int64_t run) const {
  return rows_of<Lane>(
      state_->database->prepare(
          "SELECT lane, kind, device, stream, thread, name FROM lane WHERE run = ? ORDER BY lane"),
      run, [](Columns& c, Lane& r) { c >> r.lane >> r.kind >> r.device >> r.stream >> r.thread >> r.name; });
}

std::vector<ActivityName> Reader::activity_names(std::int64_t run) const {
  StackTexts stacks;
  Statement frames = state_->database->prepare("SELECT frame, text FROM stack_frame WHERE run = ?");
  frames.bind(run);
  while (frames.step()) stacks.add_frame(frames.integer(0), frames.text(1));
  Statement places = state_->database->prepare("SELECT place, caller, frame FROM stack WHERE run = ?");
  places.bind(run);
  while (places.step()) stacks.add_place(places.integer(0), places.integer(1), places.integer(2));
  return rows_of<ActivityName>(
      state_->database->prepare("SELECT name, kind, text FROM activity_name WHERE run = ? ORDER BY name"),
      run, [&](Columns& c, ActivityName& r) {
        c >> r.name >> r.kind >> r.text;
        if (r.kind == "sample" && !stacks.is_empty()) r.text = stacks.text_of(r.text);
      });
}

std::vector<Activity> Reader::activities(std::int64_t run) const {
  std::unordered_map<std::int64_t, std::string> extras;
  Statement texts = state_->database->prepare("SELECT extra, text FROM activity_extra WHERE run = ?");
  texts.bind(run);
  while (texts.step()) extras.emplace(texts.integer(0), texts.text(1));
  auto activities = rows_of<Activity>(
      state_->select_of_run("activity",
                            "id, name, lane, start_ns, end_ns, correlation, bytes, step, op, extra", run),
      [&](Columns& c, Activity& r) {
        std::optional<std::int64_t> extra;
        c >> r.id >> r.name >> r.lane >> r.start_ns >> r.end_ns >> r.correlation >> r.bytes >> r.step >>
            r.op >> extra;
        const auto text = extra ? extras.find(*extra) : extras.end();
        if (text != extras.end()) r.extra = text->second;
      },
      state_->most_rows("activity"));
  if (!state_->has_table("activity_work")) return activities;
  Statement works = state_->select_of_run("activity_work", "activity, work", run);
  while (works.step()) {
    // They were written in the order of their numbers.
    const auto found = std::ranges::lower_bound(activities, works.integer(0), {}, &Activity::id);
    if (found != activities.end() && found->id == works.integer(0)) found->work = works.integer(1);
  }
  return activities;
}

std::vector<KernelWork> Reader::kernel_works(std::int64_t run) const {
  if (!state_->has_table("kernel_work")) return {};
  return rows_of<KernelWork>(
      state_->database->prepare(
          "SELECT work, call, shapes, dtype, matmul_flop, needed_flop, bytes, far_bytes "
          "FROM kernel_work WHERE run = ? ORDER BY work"),
      run, [](Columns& c, KernelWork& r) {
        c >> r.work >> r.call >> r.shapes >> r.dtype >> r.matmul_flop >> r.needed_flop >> r.bytes >>
            r.far_bytes;
      });
}

std::vector<Counter> Reader::counters(std::int64_t run) const {
  return rows_of<Counter>(
      state_->database->prepare("SELECT phase, scope, name, value, unit, source, op, activity FROM counter "
                                "WHERE run = ? ORDER BY rowid"),
      run, [](Columns& c, Counter& r) {
        c >> r.phase >> r.scope >> r.name >> r.value >> r.unit >> r.source >> r.op >> r.activity;
      });
}

std::vector<Gauge> Reader::gauges(std::int64_t run) const {
  return rows_of<Gauge>(
      state_->select_of_run("gauge", "device, name, time_ns, value, unit", run),
      [](Columns& c, Gauge& r) { c >> r.device >> r.name >> r.time_ns >> r.value >> r.unit; });
}

std::vector<Tensor> Reader::tensors(std::int64_t run) const {
  return rows_of<Tensor>(state_->database->prepare(
                             "SELECT tensor, name, role, dtype, shape, bytes, first_op, last_op, offset FROM "
                             "tensor WHERE run = ? ORDER BY tensor"),
                         run, read_tensor);
}

std::vector<MemoryEvent> Reader::memory_events(std::int64_t run) const {
  return rows_of<MemoryEvent>(
      state_->database->prepare(
          "SELECT seq, op, tensor, bytes, live_bytes, time_ns, device, address FROM memory_event "
          "WHERE run = ? ORDER BY seq"),
      run, [](Columns& c, MemoryEvent& r) {
        c >> r.seq >> r.op >> r.tensor >> r.bytes >> r.live_bytes >> r.time_ns >> r.device >> r.address;
      });
}

std::vector<Prediction> Reader::predictions(std::int64_t run) const {
  return rows_of<Prediction>(
      state_->database->prepare("SELECT subject, quantity, value, unit, bound FROM prediction WHERE run = ? "
                                "ORDER BY subject, quantity"),
      run, [](Columns& c, Prediction& r) { c >> r.subject >> r.quantity >> r.value >> r.unit >> r.bound; });
}

std::vector<Cell> Reader::cells() const {
  return rows_of<Cell>(
      state_->database->prepare("SELECT series, row, col, value, text, unit FROM cell ORDER BY rowid"),
      [](Columns& c, Cell& r) { c >> r.series >> r.row >> r.col >> r.value >> r.text >> r.unit; });
}

}  // namespace rooflm::record
