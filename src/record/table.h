// How a row of C++ is a row of a table: its columns are members, named once.
#pragma once

#include <string>
#include <string_view>

namespace rooflm::record {

/// The name of a column: that of the member that holds it.
template <auto Member>
constexpr std::string_view column_name() {
  constexpr std::string_view kBefore = "Member = &";
  std::string_view name = __PRETTY_FUNCTION__;  // "... [Member = &rooflm::record::Gauge::unit]"
  name = name.substr(name.find(kBefore) + kBefore.size());
  name = name.substr(0, name.find_first_of(";]"));
  name = name.substr(name.rfind(':') + 1);
  return name == "op_class" ? "class" : name;  // a keyword of C++
}

template <auto... Members>
struct Columns {
  /// What rows are read in the order of; "rowid": as they were written.
  static constexpr std::string_view kOrder = "rowid";
  /// Whether early records of its schema lack the table.
  static constexpr bool kIsLater = false;

  /// "key, value, unit".
  static std::string names() {
    std::string names;
    ((names += names.empty() ? "" : ", ", names += column_name<Members>()), ...);
    return names;
  }
  /// Calls `visit` with each member of the row, in the order of the columns.
  template <class Row, class Visit>
  static void visit(Row& row, Visit&& visit) {
    (visit(row.*Members), ...);
  }
};

/// The table that holds such rows: its columns and kName. Writer and reader have nothing else of it.
template <class Row>
struct Table;

}  // namespace rooflm::record
