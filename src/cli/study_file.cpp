// A study: a sweep, how to measure it, and the views that answer its question.
#include "cli/study_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "cli/former_names.h"
#include "cli/options/serving_options.h"
#include "cli/shipped_studies.h"
#include "core/error.h"
#include "core/names.h"
#include "core/printable.h"
#include "core/text_input.h"
#include "record/config.h"
#include "report/findings/answers.h"
#include "report/views/views.h"

namespace rooflm::cli {
namespace {

/// Studies are written by hand.
constexpr std::uint64_t kMostStudyBytes = 1U << 20U;

const std::vector<std::string> kKeys = {"title", "question",  "kind",    "answer",
                                        "views", "gpu_views", "options", "large"};
}  // namespace

/// Options of a run's configuration, of measuring, and of single ops.
std::vector<std::string> study_options() {
  std::vector<std::string> keys = {"steps",     "min-steps", "max-steps", "max-seconds", "memory-limit",
                                   "precision", "strategy",  "n",         "count",       "window"};
  for (const auto& [name, help] : serving_options()) keys.push_back(name);
  for (const record::Field& field : record::config_fields()) {
    if (field.option.starts_with("--") && field.type != record::FieldType::flag) {
      keys.emplace_back(field.option.substr(2));
    }
  }
  return keys;
}

namespace {

/// Reads one file, and says where it is wrong.
class Parser {
 public:
  Parser(std::string_view text, std::string where) : where_(std::move(where)) {
    try {
      table_ = toml::parse(text);
    } catch (const toml::parse_error& error) {
      fail(error.source().begin.line, core::printable(error.description(), 2 * core::kMostShown));
    }
  }

  Study study(const std::string& name) {
    check_keys(table_, "key", kKeys);
    Study study;
    study.name = name;
    study.title = text_of("title");
    study.question = text_of("question");
    if (table_.contains("kind"))
      study.kind = one_of("kind", {"profile", "gemm", "attention", "formats", "serving"});
    if (table_.contains("answer")) study.answer = one_of("answer", report::answer_names());
    study.options = options_of("options");
    study.large = options_of("large");
    study.views = views_of("views");
    if (table_.contains("gpu_views")) study.gpu_views = views_of("gpu_views");
    study.where = where_;
    study.lines = lines();
    return study;
  }

 private:
  [[noreturn]] void fail(std::uint32_t line, const std::string& message) const {
    throw core::InputError(fmt::format("{}:{}: {}", where_, line, message));
  }
  [[noreturn]] void fail(const toml::node& node, const std::string& message) const {
    fail(node.source().begin.line, message);
  }

  void check_keys(const toml::table& table, const char* what, const std::vector<std::string>& known) const {
    for (const auto& [key, node] : table) {
      const std::string name = present_name(std::string(key.str()));
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      fail(key.source().begin.line, core::unknown_name(what, key.str(), known));
    }
  }

  std::string text_of(const char* key) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) fail(1, fmt::format("the key '{}' is missing", key));
    if (!node->is_string()) fail(*node, fmt::format("'{}' must be a text in quotes", key));
    return node->as_string()->get();
  }

  std::string one_of(const char* key, const std::vector<std::string>& known) const {
    std::string name = text_of(key);
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(*table_.get(key), core::unknown_name(key, name, known));
    return name;
  }

  /// Values as typed on the command line; numbers and lists of them are accepted too.
  std::string value_of(std::string_view key, const toml::node& node) const {
    if (node.is_string()) return node.as_string()->get();
    if (node.is_integer()) return fmt::format("{}", node.as_integer()->get());
    if (node.is_floating_point()) return fmt::format("{}", node.as_floating_point()->get());
    if (const toml::array* list = node.as_array(); list != nullptr && !list->empty()) {
      std::string text;
      for (const toml::node& item : *list) {
        if (item.is_array()) fail(item, fmt::format("'{}' must be a list of numbers or strings", key));
        if (!text.empty()) text += ',';
        text += value_of(key, item);
      }
      return text;
    }
    fail(node, fmt::format("'{}' must be a number, a string, or a list of them", key));
  }

  std::map<std::string, std::string> options_of(const char* name) const {
    std::map<std::string, std::string> options;
    const toml::node* node = table_.get(name);
    if (node == nullptr) return options;
    if (!node->is_table()) fail(*node, fmt::format("'{}' must be a table: [{}]", name, name));
    check_keys(*node->as_table(), "option", study_options());
    for (const auto& [key, value] : *node->as_table()) {
      options[present_name(std::string(key.str()))] = value_of(key.str(), value);
    }
    return options;
  }

  /// Lines of keys and options.
  [[nodiscard]] std::map<std::string, int> lines() const {
    std::map<std::string, int> lines;
    const auto add = [&](const std::string& name, const toml::key& key) {
      lines[name] = static_cast<int>(key.source().begin.line);
    };
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      add(name, key);
      if (!node.is_table()) continue;
      for (const auto& [option, value] : *node.as_table())
        add(name + "." + present_name(std::string(option.str())), option);
    }
    return lines;
  }

  std::vector<std::string> views_of(const char* key) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) fail(1, fmt::format("the key '{}' is missing", key));
    const toml::array* list = node->as_array();
    if (list == nullptr || list->empty()) fail(*node, fmt::format("'{}' must be a list of names", key));
    std::vector<std::string> views;
    for (const toml::node& item : *list) {
      if (!item.is_string()) fail(item, fmt::format("'{}' must be a list of names", key));
      views.push_back(item.as_string()->get());
    }
    return views;
  }

  std::string where_;
  toml::table table_;
};

}  // namespace

void blame(const Study& study, const TakenOptions& taken, const core::UsageError& error) {
  const std::string_view message = error.what();
  const auto fail = [&](const std::string& place, const std::string& name) {
    const auto line = study.lines.find(place);
    throw core::InputError(fmt::format("{}:{}: {}: {}", study.where,
                                       line == study.lines.end() ? 1 : line->second, name, message));
  };
  // "--batch must be ...", "unknown model 'gtp2'"
  for (const auto& [name, table] : taken.tables) {
    const std::string& value = (table == "large" ? study.large : study.options).at(name);
    const std::string option = name == "n" ? "--size" : "--" + name;
    const auto at = message.find(option);
    const auto end = at == std::string_view::npos ? at : at + option.size();
    const bool is_named = end != std::string_view::npos &&
                          (end == message.size() || message[end] == ' ' || message[end] == ',');
    if (is_named || message.find(fmt::format("'{}'", value)) != std::string_view::npos)
      fail(fmt::format("{}.{}", table, name), name);
  }
  if (taken.some_typed || taken.tables.empty() || message.find("--") != std::string_view::npos) throw error;
  fail("options", "[options]");
  throw error;
}

void check_views(const Study& study) {
  const auto check = [&](const std::vector<std::string>& views, const char* key) {
    for (const std::string& view : views) {
      try {
        report::find_view(view);
      } catch (const core::UsageError& error) {
        throw core::InputError(
            fmt::format("{}:{}: {}: {}", study.where, study.lines.at(key), key, error.what()));
      }
    }
  };
  check(study.views, "views");
  check(study.gpu_views, "gpu_views");
}

Study parse_study(std::string_view text, const std::string& name, const std::string& where) {
  return Parser(text, where).study(name);
}

Study read_study(const std::filesystem::path& path) {
  return parse_study(core::read_text(path, kMostStudyBytes), path.stem().string(), path.string());
}

std::vector<Study> shipped_studies() {
  std::vector<Study> studies;
  for (const ShippedStudy& file : shipped_study_files()) {
    studies.push_back(
        parse_study(file.text, std::string(file.name), fmt::format("studies/{}.toml", file.name)));
  }
  return studies;
}

Study find_study(const std::string& name) {
  if (name.ends_with(".toml") || name.find('/') != std::string::npos) return read_study(name);
  std::vector<Study> studies = shipped_studies();
  const auto found =
      std::find_if(studies.begin(), studies.end(), [&](const Study& study) { return study.name == name; });
  if (found != studies.end()) return *found;
  std::vector<std::string> names;
  std::transform(studies.begin(), studies.end(), std::back_inserter(names),
                 [](const Study& study) { return study.name; });
  throw core::UsageError(core::unknown_name("study", name, names));
}

}  // namespace rooflm::cli
