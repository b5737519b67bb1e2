// Mistyped columns are refused, and those of other tables; those that tables have are not.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/table.h"
#include "core/error.h"
#include "report/views/views.h"

namespace rooflm::cli {
namespace {

std::string refusal(const std::string& name, const std::vector<std::string>& views) {
  try {
    require_columns_of_views(views, {.columns = {.names = {name}}}, false);
  } catch (const core::UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ColumnNames, EveryColumnAndCellOfEveryViewIsKnown) {
  std::size_t records = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ROOFLM_TESTS_DIR "/report/data")) {
    if (entry.path().extension() != ".rooflm") continue;
    ++records;
    const report::RecordSet set = report::load(std::array{entry.path()});
    for (const report::ViewInfo& info : report::all_views()) {
      const std::vector<std::string> view = {std::string(info.name)};
      for (const report::ViewTable& table : report::make_view(info.name, set, {}).tables) {
        for (const report::Column& column : table.table.columns) {
          EXPECT_EQ(refusal(column.key, view), "") << info.name;
          EXPECT_EQ(refusal(column.title, view), "") << info.name;
        }
        for (const report::Row& row : table.table.rows) {
          for (const auto& [key, cell] : row.cells()) EXPECT_EQ(refusal(key, view), "") << info.name;
        }
      }
    }
  }
  EXPECT_GT(records, 0U);
}

TEST(ColumnNames, OthersAreRefusedWithASuggestion) {
  EXPECT_NE(refusal("step_ms_mediam", {"phases", "bench"})
                .find("unknown column 'step_ms_mediam'; did you mean 'step_ms_median'"),
            std::string::npos);
}

TEST(ColumnNames, ThoseOfOtherTablesAreRefused) {
  EXPECT_EQ(refusal("loss", {"training"}), "");
  for (const char* view : {"advice", "phases", "blocks", "kernels"}) {
    EXPECT_NE(refusal("loss", {view}), "") << view;
    EXPECT_EQ(refusal("step_ms_mediam", {view}).find("step_ms_median"), std::string::npos) << view;
  }
  EXPECT_EQ(refusal("loss", {"advice", "training"}), "") << "any of the views";
  EXPECT_EQ(refusal("loss", {"cells"}), "") << "its columns are what a record has";
}

}  // namespace
}  // namespace rooflm::cli
