// One row type, four formats.
#include "report/table.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"

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
