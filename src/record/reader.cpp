// Reads a run record.
#include "record/reader.h"

#include <fmt/format.h>

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
#include "record/read_rows.h"
#include "record/samples.h"
#include "record/schema.h"
#include "record/stack_places.h"

namespace rooflm::record {
namespace {

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
  return rows_of<Environment>(state_->database->prepare(select_sql<Environment>()));
}

std::vector<Ceiling> Reader::ceilings() const {
  return rows_of<Ceiling>(state_->database->prepare(select_sql<Ceiling>()));
}

std::vector<Run> Reader::State::runs_of(Statement statement) const {
  auto runs = rows_of<Run>(std::move(statement), 0, [](ColumnReader& columns, Run& run) { columns(run.id); });
  for (Run& run : runs) run.config = config_of(*database, run.id);
  return runs;
}

std::vector<Run> Reader::runs() const {
  return state_->runs_of(state_->database->prepare(select_sql<Run>("kind <> 'rank'", ", id")));
}

std::vector<Run> Reader::rank_runs(std::int64_t run) const {
  Statement statement = state_->database->prepare(select_sql<Run>(
      "kind = 'rank' AND id IN (SELECT run FROM fact WHERE key = 'rank_of' AND value = ?)", ", id"));
  statement.bind(static_cast<double>(run));
  return state_->runs_of(std::move(statement));
}

bool Reader::has_table(std::string_view name) const {
  Statement found =
      state_->database->prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?");
  found.bind(name);
  return found.step();
}

Statement Reader::select(std::int64_t run, std::string_view table, const std::string& columns,
                         std::string_view order) const {
  const bool has_index = order != "rowid";
  Statement statement =
      state_->database->prepare(fmt::format("SELECT {} FROM {} WHERE run = ?{} ORDER BY {}", columns, table,
                                            has_index ? "" : " AND rowid BETWEEN ? AND ?", order));
  statement.bind(run);
  if (has_index) return statement;
  const State::RowRange range = state_->rows_of_run(std::string(table), run);
  statement.bind(range.first);
  statement.bind(range.last);
  return statement;
}

std::optional<Fact> Reader::fact(std::int64_t run, const std::string& key) const {
  Statement statement = state_->database->prepare(select_sql<Fact>("run = ? AND key = ?"));
  statement.bind(run);
  statement.bind(key);
  std::vector<Fact> found = rows_of<Fact>(std::move(statement));
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

template <>
std::vector<Sample> Reader::rows<Sample>(std::int64_t run) const {
  return read_samples(*state_->database, run);
}

template <>
std::vector<Event> Reader::rows<Event>(std::int64_t run) const {
  auto events = rows_of<Event>(select(run, "event", Table<Event>::names()));
  const auto by_step_and_op = [](const Event& a, const Event& b) {
    return std::pair(a.step, a.op) < std::pair(b.step, b.op);
  };
  // They are written in this order, so sorting is rarely needed.
  if (!std::ranges::is_sorted(events, by_step_and_op)) std::ranges::stable_sort(events, by_step_and_op);
  return events;
}

std::vector<OpTime> Reader::op_times(std::int64_t run) const { return summarise_ops(rows<Event>(run)); }

template <>
std::vector<ActivityName> Reader::rows<ActivityName>(std::int64_t run) const {
  StackTexts stacks;
  Statement frames = state_->database->prepare("SELECT frame, text FROM stack_frame WHERE run = ?");
  frames.bind(run);
  while (frames.step()) stacks.add_frame(frames.integer(0), frames.text(1));
  Statement places = state_->database->prepare("SELECT place, caller, frame FROM stack WHERE run = ?");
  places.bind(run);
  while (places.step()) stacks.add_place(places.integer(0), places.integer(1), places.integer(2));
  std::vector<ActivityName> names =
      rows_of<ActivityName>(select(run, "activity_name", Table<ActivityName>::names(), "name"));
  for (ActivityName& name : names) {
    if (name.kind == "sample" && !stacks.is_empty()) name.text = stacks.text_of(name.text);
  }
  return names;
}

template <>
std::vector<Activity> Reader::rows<Activity>(std::int64_t run) const {
  std::unordered_map<std::int64_t, std::string> extras;
  Statement texts = state_->database->prepare("SELECT extra, text FROM activity_extra WHERE run = ?");
  texts.bind(run);
  while (texts.step()) extras.emplace(texts.integer(0), texts.text(1));
  auto activities =
      rows_of<Activity>(select(run, "activity", Table<Activity>::names() + ", extra"),
                        state_->most_rows("activity"), [&](ColumnReader& columns, Activity& row) {
                          std::optional<std::int64_t> extra;
                          columns(extra);
                          const auto text = extra ? extras.find(*extra) : extras.end();
                          if (text != extras.end()) row.extra = text->second;
                        });
  if (!has_table("activity_work")) return activities;
  Statement works = select(run, "activity_work", "activity, work");
  while (works.step()) {
    // They were written in the order of their numbers.
    const auto found = std::ranges::lower_bound(activities, works.integer(0), {}, &Activity::id);
    if (found != activities.end() && found->id == works.integer(0)) found->work = works.integer(1);
  }
  return activities;
}

std::vector<Cell> Reader::cells() const {
  return rows_of<Cell>(state_->database->prepare(select_sql<Cell>()));
}

}  // namespace rooflm::record
