// The options of a served load: study serving.
#include "cli/options/serving_options.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "cli/values.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/text_input.h"

namespace rooflm::cli {
namespace {

constexpr std::uint64_t kMostLengthBytes = 64U << 20U;

/// "16-128", or "64" for a length that all have.
lab::LengthRange parse_range(const std::string& option, const std::string& text) {
  const auto dash = text.find('-');
  if (dash == std::string::npos) {
    const std::int64_t length = parse_integer(option, text);
    return {.least = length, .most = length};
  }
  const lab::LengthRange range{.least = parse_integer(option, text.substr(0, dash)),
                               .most = parse_integer(option, text.substr(dash + 1))};
  if (range.most < range.least)
    throw core::UsageError(
        fmt::format("{} {}: the first length must not be larger than the second", option, text));
  return range;
}

/// Lines "prompt tokens, new tokens"; empty ones are left out.
std::vector<std::pair<std::int64_t, std::int64_t>> read_lengths(const std::string& path) {
  std::istringstream lines(core::read_text(path, kMostLengthBytes));
  std::vector<std::pair<std::int64_t, std::int64_t>> lengths;
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    const auto comma = line.find(',');
    try {
      if (comma == std::string::npos) throw core::UsageError("no comma");
      lengths.emplace_back(parse_integer("prompt", line.substr(0, comma)),
                           parse_integer("new", line.substr(comma + 1)));
    } catch (const core::UsageError&) {
      throw core::InputError(fmt::format(
          "{}:{}: expected the token counts of a prompt and its answer, such as \"120,48\", got '{}'", path,
          number, core::printable(line, core::kMostShown)));
    }
  }
  if (lengths.empty()) throw core::InputError(fmt::format("{}: no lengths", path));
  return lengths;
}

std::vector<double> parse_rates(const std::string& text) {
  std::vector<double> rates;
  for (const std::string& name : parse_names("--rate", text)) {
    constexpr double kLeast = 1e-3;
    rates.push_back(name == "inf" ? std::numeric_limits<double>::infinity()
                                  : parse_number("--rate", name, kLeast));
  }
  return rates;
}

}  // namespace

const std::map<std::string, const char*>& serving_options() {
  static const std::map<std::string, const char*> options = {
      {"rate",
       "Arriving requests per second, one or several rates; inf: all at once (default: from a quarter of the "
       "capacity to above it)"},
      {"requests",
       "Number of requests (study serving: 32); with --max-seconds, none arrives later than that"},
      {"prompt-tokens", "Prompt lengths, uniformly distributed: 16-128 (the default), or one length"},
      {"new-tokens", "Answer lengths, uniformly distributed: 8-64 (the default), or one length"},
      {"lengths",
       "File of lengths, one line per request such as 120,48; lines repeat until --requests is reached"},
      {"users", "Relative numbers of requests per user: 4,1,1,1 (study serving: 3,1,1)"},
      {"schedule",
       "Schedulers, one or several: fcfs, fair (by user), shortest (prompts), batch (static) (study serving: "
       "all)"}};
  return options;
}

lab::ServingSettings serving_settings(const std::map<std::string, std::string>& typed) {
  lab::ServingSettings settings;
  lab::ServingLoad& load = settings.load;
  const auto with = [&](const char* name, auto&& use) {
    const auto found = typed.find(name);
    if (found != typed.end() && !found->second.empty()) use(found->second);
  };
  with("rate", [&](const std::string& text) { settings.rates = parse_rates(text); });
  with("requests", [&](const std::string& text) { load.requests = parse_integer("--requests", text); });
  with("prompt-tokens", [&](const std::string& text) { load.prompt = parse_range("--prompt-tokens", text); });
  with("new-tokens", [&](const std::string& text) { load.answer = parse_range("--new-tokens", text); });
  with("lengths", [&](const std::string& text) { load.lengths = read_lengths(text); });
  with("users", [&](const std::string& text) {
    load.users.clear();
    constexpr double kLeast = 1e-6;
    for (const std::string& share : parse_names("--users", text))
      load.users.push_back(parse_number("--users", share, kLeast));
  });
  with("schedule", [&](const std::string& text) {
    settings.schedules.clear();
    for (const std::string& name : parse_names("--schedule", text))
      settings.schedules.push_back(core::parse<serve::Schedule>(name));
  });
  return settings;
}

}  // namespace rooflm::cli
