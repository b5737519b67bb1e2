// The front of CLI11: options, help, and what is said of arguments that do not fit.
#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "cli/former_names.h"
#include "cli/output.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/names.h"
#include "core/printable.h"

namespace rooflm::cli {
namespace {

/// "--name=" as "--name" and an empty value, which CLI11 would otherwise take from the next argument.
void keep_empty_values(std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") return;
    if (!arguments[i].starts_with("--") || arguments[i].find('=') + 1 != arguments[i].size()) continue;
    arguments[i].pop_back();
    arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, "");
  }
}

/// Of an option without its value CLI11 says "--scaling: 1 required strong|weak missing".
std::string missing_value(const std::string& what) {
  constexpr std::string_view kRequired = ": 1 required ";
  constexpr std::string_view kMissing = " missing";
  const std::size_t name = what.find(kRequired);
  if (name == std::string::npos || !what.ends_with(kMissing)) return what;
  const std::size_t begin = name + kRequired.size();
  return fmt::format("{} needs a value: {}", what.substr(0, name),
                     what.substr(begin, what.size() - begin - kMissing.size()));
}

}  // namespace

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::group(const std::string& name) {
  option_->group(name);
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::list() {
  option_->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->delimiter(',');
  return *this;
}

Option& Option::repeated() {
  option_->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  return *this;
}

CommandLine::CommandLine(const std::string& name, const std::string& summary, Offer offer)
    : name_(name), offer_(offer), app_(std::make_unique<CLI::App>(summary, "rooflm " + name)) {
  app_->get_formatter()->column_width(36);
  app_->option_defaults()->take_last();
  app_->allow_extras();
}

CommandLine::~CommandLine() = default;

void CommandLine::remember(const std::string& name, Variable variable) {
  const auto dashes = name.find("--");
  if (dashes != std::string::npos) variables_[name.substr(dashes + 2)] = variable;
}

Option CommandLine::add_option(const std::string& name, std::string& value, const std::string& help) {
  remember(name, &value);
  return Option(app_->add_option(name, value, help));
}

Option CommandLine::add_option(const std::string& name, std::vector<std::string>& values,
                               const std::string& help) {
  remember(name, &values);
  return Option(app_->add_option(name, values, help));
}

Option CommandLine::add_flag(const std::string& name, bool& value, const std::string& help) {
  remember(name, &value);
  return Option(app_->add_flag(name, value, help));
}

bool CommandLine::set_default(const std::string& name, const std::string& text) {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return false;
  if (auto* const* flag = std::get_if<bool*>(&found->second)) {
    if (text != "yes" && text != "no") {
      throw core::UsageError(fmt::format("--{} must be yes or no, got '{}'", name, core::printable(text)));
    }
    **flag = text == "yes";
  } else if (auto* const* several = std::get_if<std::vector<std::string>*>(&found->second)) {
    **several = parse_names("--" + name, text);
  } else {
    *std::get<std::string*>(found->second) = text;
  }
  app_->get_option("--" + name)->default_str(text);
  defaults_[name] = text;
  return true;
}

void CommandLine::footer(const std::string& text) { app_->footer(text); }

std::string CommandLine::footer() const { return app_->get_footer(); }

std::vector<Declared> CommandLine::declared() const {
  std::vector<Declared> all;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    Declared one{.names = {},
                 .positional = option->get_positional() ? option->get_name(true) : "",
                 .type = option->get_items_expected_max() == 0 ? "" : option->get_type_name(),
                 .fallback = option->get_default_str(),
                 .group = option->get_group(),
                 .help = option->get_description()};
    for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
    const auto words = words_.find(one.names.empty() ? one.positional : one.names.back());
    if (words != words_.end()) one.words = words->second();
    all.push_back(std::move(one));
  }
  return all;
}

bool CommandLine::parse(std::vector<std::string> arguments) {
  const auto mark = rest_ == nullptr ? arguments.end() : std::ranges::find(arguments, "--");
  if (mark != arguments.end()) {
    rest_->assign(std::next(mark), arguments.end());
    arguments.erase(mark, arguments.end());
  }
  const auto options_end = std::ranges::find(arguments, "--");
  std::transform(arguments.begin(), options_end, arguments.begin(), present_argument);
  keep_empty_values(arguments);
  try {
    std::reverse(arguments.begin(), arguments.end());
    app_->parse(arguments);
  } catch (const CLI::CallForHelp&) {
    write_text(app_->help());
    return false;
  } catch (const CLI::RequiredError& error) {
    check_extras();
    const std::string_view what = error.what();  // "file is required"
    throw core::UsageError(fmt::format("{}: the argument {} is missing (`rooflm {} --help` shows its use)",
                                       name_, what.substr(0, what.find(' ')), name_));
  } catch (const CLI::ParseError& error) {
    check_extras();
    throw core::UsageError(
        fmt::format("{}: {}", name_, core::printable(missing_value(error.what()), 4 * core::kMostShown)));
  }
  check_extras();
  check_empty();
  return true;
}

bool CommandLine::was_given(const std::string& option) const { return app_->get_option(option)->count() > 0; }

std::vector<std::string> CommandLine::names_of_models() const {
  const CLI::Option* const option = app_->get_option_no_throw("--model");
  const bool is_directory = option != nullptr && option->get_type_name().find("DIR") != std::string::npos;
  return is_directory ? parse_names("--model", *std::get<std::string*>(variables_.at("model")))
                      : std::vector<std::string>();
}

void CommandLine::check_empty() const {
  for (const CLI::Option* option : app_->get_options()) {
    const std::string type = option->get_type_name();
    const bool takes_none = option->get_items_expected_max() == 0;
    if (option->count() == 0 || takes_none || type.starts_with("TEXT")) continue;
    const auto results = option->results();
    if (std::ranges::find(results, "") != results.end()) {
      throw core::UsageError(fmt::format("{}: {} is empty, expected {}", name_, option->get_name(), type));
    }
  }
}

void CommandLine::check_extras() const {
  std::vector<std::string> extras = app_->remaining();
  std::erase(extras, "--");  // CLI11 counts it among them
  if (extras.empty()) return;
  std::string extra = extras.front();
  for (const std::string& candidate : extras) {
    if (candidate.starts_with('-')) {
      extra = candidate;
      break;
    }
  }
  if (!extra.starts_with('-')) {
    const char* hint = rest_ == nullptr ? "lists are written a,b without spaces"
                                        : "options come first, then --, then the program and its options";
    throw core::UsageError(
        fmt::format("{}: unexpected argument '{}' ({})", name_, core::printable(extra), hint));
  }
  extra = extra.substr(0, extra.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app_->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::string near = core::nearest_name(extra, known);
  throw core::UsageError(fmt::format("{}: unknown option '{}'{} (`rooflm {} --help` lists all)", name_,
                                     core::printable(extra),
                                     near.empty() ? "" : "; did you mean '" + near + "'?", name_));
}

}  // namespace rooflm::cli
