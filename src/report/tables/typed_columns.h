// Columns as values: one list says what each column of a table holds, its key, title, unit and how it is
// shown. Text, CSV, JSON, Markdown, the page and the check of --columns come from that list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "report/tables/table.h"

namespace rooflm::report {

/// Whether people see a column. CSV and JSON have all of them.
enum class Seen : std::uint8_t {
  always,
  grouped,       ///< always; rows with the same text belong together (Column::is_group)
  when_known,    ///< where at least one row has a value, or a text that is not ""
  when_differs,  ///< where two rows differ in it
  never
};

/// Numbers, truth values and texts as they are, enumerators by name_of, nothing for an empty optional.
template <class T>
Cell cell_from(const T& value) {
  if constexpr (std::is_same_v<T, Cell>) {
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return Cell(value);
  } else if constexpr (std::is_integral_v<T>) {
    return Cell(static_cast<std::int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return Cell(static_cast<double>(value));
  } else if constexpr (std::is_enum_v<T>) {
    return Cell(std::string(name_of(value)));
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return Cell(std::string(std::string_view(value)));
  } else {
    return value ? cell_from(*value) : Cell();
  }
}

/// A text, or nothing where it is "".
inline Cell known_text(const std::string& text) { return text.empty() ? Cell() : Cell(text); }

/// A column of a table that has a row for each R. `value`: a member of R, or a function of one.
template <class R>
struct TypedColumn {
  template <class Value>
  TypedColumn(const char* key, const char* title, Value value, Show show = Show::plain, const char* unit = "",
              Seen is_seen = Seen::always)
      : column{.key = key, .title = title, .show = show, .unit = unit},
        cell([value](const R& row) { return cell_from(std::invoke(value, row)); }),
        seen(is_seen) {
    column.is_group = is_seen == Seen::grouped;
    if (column.unit.empty() && show == Show::seconds) column.unit = "s";
    if (column.unit.empty() && show == Show::bytes) column.unit = "byte";
  }
  template <class Value>
  TypedColumn(const char* key, const char* title, Value value, Seen is_seen, Show show = Show::plain)
      : TypedColumn(key, title, std::move(value), show, "", is_seen) {}
  /// Of CSV and JSON only.
  template <class Value, class = std::enable_if_t<std::is_invocable_v<Value, const R&>>>
  TypedColumn(const char* key, Value value) : TypedColumn(key, key, std::move(value), Seen::never) {}
  TypedColumn(Column shown, std::function<Cell(const R&)> of_row, Seen is_seen)
      : column(std::move(shown)), cell(std::move(of_row)), seen(is_seen) {}

  Column column;
  std::function<Cell(const R&)> cell;
  Seen seen;
};

/// What a member of R, or a function of one, gives: a P, or a pointer to one.
template <class R, class Part>
using PartOf =
    std::remove_cv_t<std::remove_pointer_t<std::remove_cvref_t<std::invoke_result_t<Part, const R&>>>>;

/// The columns of a table, in the order of all formats.
template <class R>
class TypedColumns {
 public:
  TypedColumns(std::initializer_list<TypedColumn<R>> columns) : columns_(columns) {}

  TypedColumns& add(TypedColumn<R> column) {
    columns_.push_back(std::move(column));
    return *this;
  }
  TypedColumns& add(const TypedColumns& more) {
    columns_.insert(columns_.end(), more.columns_.begin(), more.columns_.end());
    return *this;
  }
  /// The columns of what `part` gives of a row: a P, or a pointer to one, where nullptr leaves them empty.
  template <class Part, class P = PartOf<R, Part>>
  TypedColumns& add(const TypedColumns<std::type_identity_t<P>>& columns, Part part) {
    for (const TypedColumn<P>& one : columns.list()) {
      const auto of_row = [cell = one.cell, part](const R& row) {
        const auto& found = std::invoke(part, row);
        if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(found)>>) {
          return found == nullptr ? Cell() : cell(*found);
        } else {
          return cell(found);
        }
      };
      columns_.emplace_back(one.column, of_row, one.seen);
    }
    return *this;
  }

  /// The same with another title for the column of that key, where a title depends on the record.
  [[nodiscard]] TypedColumns with_title(std::string_view key, const std::string& title) const {
    TypedColumns changed = *this;
    for (TypedColumn<R>& one : changed.columns_) {
      if (one.column.key == key) one.column.title = title;
    }
    return changed;
  }

  [[nodiscard]] const std::vector<TypedColumn<R>>& list() const { return columns_; }

  [[nodiscard]] Row row(const R& value) const {
    Row row;
    row.reserve(columns_.size());
    for (const TypedColumn<R>& one : columns_) row.append(one.column.key, one.cell(value));
    return row;
  }

  /// A row for each value, the first `top` of them (0: all); a note counts the others: "3 more kernels".
  template <class Values>
  [[nodiscard]] Table table(const Values& values, std::size_t top = 0, std::string_view what = {}) const {
    Table table;
    std::vector<bool> is_known(columns_.size(), false), differs(columns_.size(), false);
    for (const R& value : values) {
      if (top > 0 && table.rows.size() == top) {
        table.notes.push_back(more_rows(std::size(values) - top, what));
        break;
      }
      const auto& cells = table.rows.emplace_back(row(value)).cells();
      const auto& first = table.rows.front().cells();
      for (std::size_t i = 0; i < cells.size(); ++i) {
        is_known[i] = is_known[i] || says_something(cells[i].second);
        differs[i] = differs[i] || cells[i].second != first[i].second;
      }
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const Seen seen = columns_[i].seen;
      if (seen == Seen::always || seen == Seen::grouped || (seen == Seen::when_known && is_known[i]) ||
          (seen == Seen::when_differs && differs[i]))
        table.columns.push_back(columns_[i].column);
    }
    return table;
  }

 private:
  std::vector<TypedColumn<R>> columns_;
};

/// All columns of these lists: what --columns may name.
template <class... R>
std::vector<Column> columns_of(const TypedColumns<R>&... lists) {
  std::vector<Column> all;
  const auto add = [&](const auto& list) {
    for (const auto& one : list.list()) all.push_back(one.column);
  };
  (add(lists), ...);
  return all;
}

}  // namespace rooflm::report
