// Rows of one series of a record, written cell by cell.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/rows.h"

namespace rooflm::lab {

/// Collects the cells of one series row by row.
class Cells {
 public:
  explicit Cells(std::string series) : series_(std::move(series)) {}
  void next_row() { ++row_; }
  void number(const std::string& col, double value, const std::string& unit = "") {
    cells_.push_back({.series = series_, .row = row_, .col = col, .value = value, .text = {}, .unit = unit});
  }
  void text(const std::string& col, std::string_view value) {
    cells_.push_back(
        {.series = series_, .row = row_, .col = col, .value = {}, .text = std::string(value), .unit = {}});
  }
  [[nodiscard]] std::vector<record::Cell> take() { return std::move(cells_); }

 private:
  std::string series_;
  std::int64_t row_ = -1;
  std::vector<record::Cell> cells_;
};

}  // namespace rooflm::lab
