// Rows of a record as its tables have them.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/database.h"
#include "record/rows.h"

namespace rooflm::record {

/// Returns the columns of a row one after the other.
class ColumnReader {
 public:
  explicit ColumnReader(const Statement& row) : row_(&row) {}
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

/// "SELECT key, value FROM table WHERE .. ORDER BY ..".
template <class Row>
std::string select_sql(std::string_view where = "", std::string_view more = "") {
  return fmt::format("SELECT {}{} FROM {}{}{} ORDER BY {}", Table<Row>::names(), more, Table<Row>::kName,
                     where.empty() ? "" : " WHERE ", where, Table<Row>::kOrder);
}

struct NothingMore {
  template <class Row>
  void operator()(ColumnReader& /*columns*/, Row& /*row*/) const {}
};

/// All result rows of `statement`; `read_more(columns, row)` reads the columns behind those of Table<Row>.
/// Reserves room for `expected` rows.
template <class Row, class More = NothingMore>
std::vector<Row> rows_of(Statement statement, std::size_t expected = 0, const More& read_more = {}) {
  std::vector<Row> rows;
  rows.reserve(expected);
  while (statement.step()) {
    ColumnReader columns(statement);
    Table<Row>::visit(rows.emplace_back(), columns);
    read_more(columns, rows.back());
  }
  return rows;
}

}  // namespace rooflm::record
