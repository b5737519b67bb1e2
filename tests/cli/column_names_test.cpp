// Mistyped columns are refused, those that tables have are not.
#include "cli/column_names.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "report/views.h"

namespace rooflm::cli {
namespace {

TEST(ColumnNames, EveryColumnAndCellOfEveryViewIsKnown) {
  std::size_t records = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ROOFLM_TESTS_DIR "/report/data")) {
    if (entry.path().extension() != ".rooflm") continue;
    ++records;
    const report::RecordSet set = report::load(std::array{entry.path()});
    for (const report::ViewInfo& info : report::all_views()) {
      for (const report::ViewTable& table : report::make_view(info.name, set, {}).tables) {
        for (const report::Column& column : table.table.columns) {
          EXPECT_NO_THROW(require_column_names({column.key})) << info.name << ": " << column.key;
        }
        for (const report::Row& row : table.table.rows) {
          for (const auto& [key, cell] : row.cells())
            EXPECT_NO_THROW(require_column_names({key})) << info.name;
        }
      }
    }
  }
  EXPECT_GT(records, 0U);
}

TEST(ColumnNames, OthersAreRefusedWithASuggestion) {
  try {
    require_column_names({"engine", "forward_flop_per_s", "step_ms_mediam"});
    FAIL();
  } catch (const core::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'step_ms_median'"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace rooflm::cli
