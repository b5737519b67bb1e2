// docs/record.md against the schema: every table and column is explained, every query runs and answers
// something.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "record/database.h"
#include "record/writer.h"
#include "tests/record/record_testing.h"
#include "tests/report/made_up_run.h"

namespace rooflm::record {
namespace {

std::string read_doc() {
  const auto path = std::filesystem::path(ROOFLM_TESTS_DIR) / ".." / "docs" / "record.md";
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The fenced blocks of SQL.
std::vector<std::string> queries_of(const std::string& doc) {
  const std::string open = "```sql\n";
  std::vector<std::string> queries;
  for (auto at = doc.find(open); at != std::string::npos; at = doc.find(open, at)) {
    at += open.size();
    queries.push_back(doc.substr(at, doc.find("```", at) - at));
  }
  return queries;
}

/// From the heading of a table to the next heading.
std::string section_of(const std::string& doc, const std::string& table) {
  const auto begin = doc.find(fmt::format("\n### {}\n", table));
  if (begin == std::string::npos) return "";
  return doc.substr(begin, doc.find("\n#", begin + 1) - begin);
}

Database example(const TemporaryFolder& folder) {
  const auto path = folder / "a.rooflm";
  Writer writer(path, "made up");
  report::made_up_run().write(writer);
  writer.finish();
  return Database(path, Database::Mode::read, std::chrono::milliseconds(0));
}

TEST(RecordDoc, EveryQueryAnswersSomething) {
  const TemporaryFolder folder;
  const Database database = example(folder);
  const auto queries = queries_of(read_doc());
  EXPECT_GE(queries.size(), 5U);
  for (const std::string& query : queries) {
    Statement statement = database.prepare(query);
    int rows = 0;
    while (statement.step()) ++rows;
    EXPECT_GT(rows, 0) << query;
  }
}

TEST(RecordDoc, TheMedianOfItsQueryIsTheMedian) {
  const TemporaryFolder folder;
  const Database database = example(folder);
  const std::string query = queries_of(read_doc()).at(2);
  Statement statement = database.prepare(query);
  ASSERT_TRUE(statement.step());
  EXPECT_EQ(statement.text(0), "tiny made up");
  EXPECT_EQ(statement.integer(1), 20);
  std::vector<double> seconds;
  Statement samples =
      database.prepare("SELECT seconds FROM sample WHERE phase = 'step' AND kind = 'plain' ORDER BY seconds");
  while (samples.step()) seconds.push_back(samples.number(0));
  ASSERT_EQ(seconds.size(), 20U);
  EXPECT_NEAR(statement.number(2), 1e3 * (seconds[9] + seconds[10]) / 2, 1e-3);
}

TEST(RecordDoc, EveryTableAndColumnIsExplained) {
  const TemporaryFolder folder;
  const Database database = example(folder);
  const std::string doc = read_doc();
  Statement columns = database.prepare(
      "SELECT s.name, c.name FROM sqlite_schema AS s, pragma_table_info(s.name) AS c WHERE s.type IN "
      "('table', 'view')");
  int count = 0;
  while (columns.step()) {
    const std::string section = section_of(doc, columns.text(0));
    EXPECT_NE(section.find(fmt::format("`{}`", columns.text(1))), std::string::npos)
        << columns.text(0) << "." << columns.text(1);
    ++count;
  }
  EXPECT_GT(count, 100);
}

}  // namespace
}  // namespace rooflm::record
