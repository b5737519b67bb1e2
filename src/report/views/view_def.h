// What a view file defines: its rows of the table of views. CMake finds the files views_*.cpp and generates
// their list (view_list.cpp); each defines `std::span<const ViewDef> NAME()`, with the name of the file.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "report/model/run_data.h"
#include "report/views/view.h"

namespace rooflm::report {

/// What is known of a view without any record.
struct ViewInfo {
  std::string_view name;
  std::string_view title;
  std::string_view note;   ///< how to read it
  std::string_view needs;  ///< what has to be recorded for it; empty for another reason, a view sets its note
  bool is_on_page = false;  ///< the report page draws it itself from the document's other parts
  /// Its note then says that other programs used the processors. False where nothing is timed, and where each
  /// run's load is said already.
  bool warns_of_load = true;
};

/// How a view is made: what each run adds, then what all of them add together; either may be nullptr.
struct ViewDef {
  int place = 0;  ///< views are listed by it, smallest first
  ViewInfo info;
  void (*of_run)(const RunData&, const ViewOptions&, View&) = nullptr;
  void (*of_all)(const RecordSet&, const ViewOptions&, View&) = nullptr;
  /// All columns of its tables; nullptr where what was recorded names them.
  std::vector<Column> (*columns)() = nullptr;
  bool has_roles = false;  ///< its tables have a column for each role of a tensor, too
};

inline constexpr std::string_view kNeedsOpTimes = "observed steps (rooflm profile)";
inline constexpr std::string_view kNeedsSamples = "timed steps (rooflm bench or profile)";
inline constexpr std::string_view kNeedsMemory = "memory events (rooflm profile)";

/// The views of each file.
std::vector<std::span<const ViewDef>> views_by_file();

}  // namespace rooflm::report
