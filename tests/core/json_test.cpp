// Parsing JSON from outside: limits, and places in messages.
#include "core/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"

namespace rooflm::core {
namespace {

std::string json_refusal(const std::string& text, bool as_object = false) {
  try {
    static_cast<void>(as_object ? parse_json_object(text, "a.json", "the file")
                                : parse_json(text, "a.json", "the file"));
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ParseJson, ReadsWhatIsFine) {
  EXPECT_EQ(parse_json("[1, 2.5, \"a\"]", "a.json", "the file").size(), 3U);
  EXPECT_EQ(parse_json_object(R"({"a": {"a": 1}})", "a.json", "the file").size(), 1U);
  EXPECT_EQ(json_refusal(nested(kMostJsonDepth)), "no error");
  EXPECT_EQ(json_refusal("\"" + std::string(1000, '[') + "\""), "no error") << "within a string";
  EXPECT_EQ(json_refusal(R"(["\"[[[", "\\"])"), "no error");
}

TEST(ParseJson, RefusesWhatIsDeep) {
  EXPECT_EQ(json_refusal(nested(kMostJsonDepth + 1)),
            "a.json: the file is nested deeper than 64 levels at line 1, column 65");
  EXPECT_NE(json_refusal(std::string(10'000'000, '[')).find("deeper"), std::string::npos);
  EXPECT_NE(json_refusal("{\n\"a\": " + std::string(200'000, '{')).find("line 2"), std::string::npos);
}

TEST(ParseJson, PlacesErrors) {
  EXPECT_EQ(
      json_refusal("{\"a\": 1,\n \"b\" 2}").find("a.json: the file is not valid JSON at line 2, column "),
      0U);
  EXPECT_EQ(json_refusal("").find("a.json: the file is not valid JSON at line 1"), 0U);
  EXPECT_EQ(json_refusal("[1,\n2,\n-1e999]"),
            "a.json: the file holds a number that is too large: -1e999 at line 3, column 1");
  EXPECT_EQ(json_refusal("\"\xff\"").find("a.json: the file is not valid JSON"), 0U);
}

TEST(ParseJson, ObjectsHaveEachNameOnce) {
  EXPECT_NE(json_refusal("[]", true).find("is not a JSON object"), std::string::npos);
  EXPECT_NE(json_refusal(R"({"a": 1, "a": 2})", true).find("names a twice"), std::string::npos);
}

TEST(ParseJson, NumbersThatPythonWritesAreTexts) {
  constexpr std::string_view kText =
      R"({"a": NaN, "b": [-Infinity, Infinity], "c": "NaN \" Infinity\\", "d": 1})";
  const auto root = parse_python_json_object(kText, "f", "x");
  EXPECT_EQ(root.at("a"), "NaN");
  EXPECT_EQ(root.at("b"), nlohmann::json({"-Infinity", "Infinity"}));
  EXPECT_EQ(root.at("c"), "NaN \" Infinity\\");
  EXPECT_EQ(root.at("d"), 1);
  EXPECT_THROW(parse_python_json_object(R"({"a": NaNs})", "f", "x"), InputError);
  EXPECT_THROW(parse_python_json_object("{\"a\\", "f", "x"), InputError);
  EXPECT_THROW(parse_json_object(kText, "f", "x"), InputError) << "elsewhere they are no JSON";
}

TEST(ShownJson, IsShort) {
  EXPECT_EQ(shown(nlohmann::json({{"a", 1}})), R"({"a":1})");
  EXPECT_LT(shown(nlohmann::json(std::string(100'000, 'x'))).size(), 200U);
  EXPECT_EQ(shown(nlohmann::json(std::vector<int>(1000, 1))), "a list of 1000 items");
  EXPECT_EQ(shown(nlohmann::json("\x1b")), R"("\u001b")");
}

TEST(LineOfKey, CountsLines) {
  EXPECT_EQ(line_of_key("{\n \"a\": 1,\n \"b\": 2}", "b"), 3U);
  EXPECT_EQ(line_of_key("{}", "b"), 1U);
}

}  // namespace
}  // namespace rooflm::core
