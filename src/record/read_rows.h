// Rows of a record as its tables have them. For .cpp files of the room only.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/database.h"
#include "record/tables.h"

namespace rooflm::record {

/// Returns the columns of a row one after the other.
class Columns {
 public:
  explicit Columns(const Statement& row) : row_(&row) {}
  void operator()(std::int64_t& value) { value = row_->integer(next_++); }
  void operator()(int& value) { value = static_cast<int>(row_->integer(next_++)); }
  void operator()(bool& value) { value = row_->integer(next_++) != 0; }
  void operator()(double& value) { value = row_->number(next_++); }
  void operator()(std::string& value) { value = row_->text(next_++); }
  void operator()(std::optional<double>& value) {
    if (!row_->is_null(next_)) value = row_->number(next_);
    ++next_;
  }
  void operator()(std::optional<std::int64_t>& value) {
    if (!row_->is_null(next_)) value = row_->integer(next_);
    ++next_;
  }

 private:
  const Statement* row_;
  int next_ = 0;
};

template <class Row>
void read_row(Columns& columns, Row& row) {
  each_column(row, [&](auto& value) { columns(value); });
}

/// "SELECT key, value FROM table WHERE .. ORDER BY ..".
template <class Row>
std::string select_sql(std::string_view where = "", std::string_view more = "") {
  return fmt::format("SELECT {}{} FROM {}{}{} ORDER BY {}", columns_of_table<Row>(), more, Table<Row>::kName,
                     where.empty() ? "" : " WHERE ", where, Table<Row>::kOrder);
}

struct NothingMore {
  template <class Row>
  void operator()(Columns& /*columns*/, Row& /*row*/) const {}
};

/// All result rows of `statement`; `read_more(columns, row)` reads the columns behind those of Table<Row>.
/// Reserves room for `expected` rows.
template <class Row, class More = NothingMore>
std::vector<Row> rows_of(Statement statement, std::size_t expected = 0, const More& read_more = {}) {
  std::vector<Row> rows;
  rows.reserve(expected);
  while (statement.step()) {
    Columns columns(statement);
    read_row(columns, rows.emplace_back());
    read_more(columns, rows.back());
  }
  return rows;
}

/// All rows of one run.
template <class Row>
std::vector<Row> rows_of_run(const Database& database, std::int64_t run) {
  Statement statement = database.prepare(select_sql<Row>("run = ?"));
  statement.bind(run);
  return rows_of<Row>(std::move(statement));
}

}  // namespace rooflm::record
