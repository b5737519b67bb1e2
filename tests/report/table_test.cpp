// One row type, four formats.
#include "report/tables/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/text_fit.h"

namespace rooflm::report {
namespace {

Table sample() {
  Row first;
  first.set("name", std::string("a,\"b\""));
  first.set("count", std::int64_t{1234567890123});
  first.set("rate", 0.1);
  first.set("fast", true);
  Row second;
  second.set("name", std::string("grün"));
  second.set("count", {});
  second.set("rate", std::numeric_limits<double>::infinity());
  second.set("fast", false);
  second.set("extra", std::int64_t{7});
  return {.columns = {{"name", "name"}, {"count", "count", Show::si}, {"rate", "rate", Show::percent}},
          .rows = {first, second},
          .notes = {"a note"}};
}

TEST(Table, WhatIsShownAsPercentIsAShare) {
  EXPECT_EQ(unit_of({"a", "a", Show::percent}), "share");
  EXPECT_EQ(unit_of({"a", "a", Show::percent2}), "share");
  EXPECT_EQ(unit_of({"a", "a", Show::seconds, "s"}), "s");
  EXPECT_EQ(unit_of({"a", "a"}), "");
}

TEST(Table, JsonKeepsNumbersAsNumbers) {
  const auto json = nlohmann::json::parse(format_table(sample(), Format::json));
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["name"], "a,\"b\"");
  EXPECT_EQ(json[0]["count"].get<std::int64_t>(), 1234567890123);
  EXPECT_EQ(json[0]["rate"].get<double>(), 0.1);
  EXPECT_EQ(json[0]["fast"], true);
  EXPECT_TRUE(json[1]["count"].is_null());
  EXPECT_TRUE(json[1]["rate"].is_null());
  EXPECT_EQ(json[1]["extra"], 7);
}

TEST(Table, JsonOfNoRowsAndBadText) {
  EXPECT_EQ(nlohmann::json::parse(format_table({}, Format::json)).size(), 0U);
  Table table;
  table.rows.emplace_back().set("name", std::string("\xff"));
  EXPECT_NO_THROW(nlohmann::json::parse(format_table(table, Format::json)));
}

TEST(Table, CsvQuotesAndHasEveryKey) {
  EXPECT_EQ(format_table(sample(), Format::csv),
            "name,count,rate,fast,extra\n"
            "\"a,\"\"b\"\"\",1234567890123,0.1,true,\n"
            "grün,,,false,7\n");
}

TEST(Table, TextIsAligned) {
  EXPECT_EQ(format_table(sample(), Format::table),
            "name    count   rate\n"
            "-----  ------  -----\n"
            "a,\"b\"  1.23 T  10.0%\n"
            "grün        -      -\n"
            "a note\n");
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    widest = std::max(widest, core::width_of(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return widest;
}

TEST(Table, WideTablesFitATerminal) {
  Table table = sample();
  table.columns.push_back({"text", "what would help"});
  table.notes = {"a note that is longer than forty columns are wide, and is wrapped"};
  table.rows[0].set("text", std::string("grüne Wörter, and others that say what would help"));
  EXPECT_EQ(format_table(table, Format::table, 60),
            "name    count   rate  what would help\n"
            "-----  ------  -----  --------------------------------------\n"
            "a,\"b\"  1.23 T  10.0%  grüne Wörter, and others that say what\n"
            "                      would help\n"
            "grün        -      -  -\n"
            "a note that is longer than forty columns are wide, and is\n"
            "wrapped\n");
  EXPECT_EQ(format_table(table, Format::table, 40),
            "name    count   rate\n"
            "-----  ------  -----\n"
            "a,\"b\"  1.23 T  10.0%\n"
            "grün        -      -\n"
            "\n"
            "name   what would help\n"
            "-----  ---------------------------------\n"
            "a,\"b\"  grüne Wörter, and others that say\n"
            "       what would help\n"
            "grün   -\n"
            "a note that is longer than forty columns\n"
            "are wide, and is wrapped\n");
  for (std::size_t i = 0; i < 12; ++i) {
    table.columns.push_back({"c" + std::to_string(i), "column " + std::to_string(i)});
    table.rows[0].set(table.columns.back().key, 1e5 * static_cast<double>(i));
  }
  for (const std::size_t width : {40U, 80U, 100U, 120U}) {
    EXPECT_LE(widest_line(format_table(table, Format::table, width)), width);
  }
  EXPECT_GT(widest_line(format_table(table, Format::table)), 150U) << "no limit for a pipe";
}

Table runs_table(std::size_t rows_of_each) {
  Table table{.columns = {{.key = "which", .title = "run", .is_group = true}, {"phase", "phase"}},
              .rows = {},
              .notes = {}};
  for (std::size_t i = 0; i < 5; ++i) {
    table.columns.push_back({"c" + std::to_string(i), "column " + std::to_string(i)});
  }
  for (const char* run : {"tiny eager", "tiny fused"}) {
    for (std::size_t i = 0; i < rows_of_each; ++i) {
      Row& row = table.rows.emplace_back();
      row.set("which", std::string(run));
      row.set("phase", std::string("forward"));
      for (std::size_t c = 0; c < 5; ++c) row.set("c" + std::to_string(c), static_cast<std::int64_t>(i));
    }
  }
  return table;
}

TEST(Table, OfSeveralRunsIsShownRunByRunWhereItIsTooWide) {
  const std::string text = format_table(runs_table(3), Format::table, 50);
  EXPECT_LE(widest_line(text), 50U);
  EXPECT_EQ(text,
            "run: tiny eager\n"
            "#  phase    column 0  column 1  column 2  column 3\n"
            "-  -------  --------  --------  --------  --------\n"
            "1  forward         0         0         0         0\n"
            "2  forward         1         1         1         1\n"
            "3  forward         2         2         2         2\n"
            "\n"
            "#  phase    column 4\n"
            "-  -------  --------\n"
            "1  forward         0\n"
            "2  forward         1\n"
            "3  forward         2\n"
            "\n"
            "run: tiny fused\n"
            "#  phase    column 0  column 1  column 2  column 3\n"
            "-  -------  --------  --------  --------  --------\n"
            "1  forward         0         0         0         0\n"
            "2  forward         1         1         1         1\n"
            "3  forward         2         2         2         2\n"
            "\n"
            "#  phase    column 4\n"
            "-  -------  --------\n"
            "1  forward         0\n"
            "2  forward         1\n"
            "3  forward         2\n");
}

TEST(Table, NamesARunOnceWhereItFits) {
  EXPECT_EQ(format_table(runs_table(2), Format::table, 100),
            "run         phase    column 0  column 1  column 2  column 3  column 4\n"
            "----------  -------  --------  --------  --------  --------  --------\n"
            "tiny eager  forward         0         0         0         0         0\n"
            "            forward         1         1         1         1         1\n"
            "tiny fused  forward         0         0         0         0         0\n"
            "            forward         1         1         1         1         1\n");
  const std::string whole = format_table(runs_table(2), Format::table);
  EXPECT_NE(whole.find("tiny fused"), whole.rfind("tiny fused")) << "a file names it in each row";
  EXPECT_EQ(format_cell(12.0, Show::brief), "12.00");
  EXPECT_EQ(format_cell(12345.6, Show::brief), "12346");
}

TEST(Table, MarkdownRightAlignsNumbers) {
  EXPECT_EQ(format_table(sample(), Format::md),
            "| name  |  count |  rate |\n"
            "| ----- | -----: | ----: |\n"
            "| a,\"b\" | 1.23 T | 10.0% |\n"
            "| grün  |      - |     - |\n"
            "\na note\n");
}

TEST(Table, UnknownFormatsAreRefused) {
  EXPECT_EQ(parse_format("md"), Format::md);
  EXPECT_THROW(parse_format("jsn"), core::UsageError);
}

}  // namespace
}  // namespace rooflm::report
