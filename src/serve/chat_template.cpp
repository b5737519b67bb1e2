// Turns of a conversation as the text that a model was trained on.
#include "serve/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/names.h"
#include "core/printable.h"
#include "core/text_input.h"

namespace rooflm::serve {
namespace {

using nlohmann::json;

constexpr std::string_view kContent = "{content}";

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

/// Text in which only what the template says may be a special token.
class Writer {
 public:
  explicit Writer(const text::Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  void literal(std::string_view text) {
    while (!text.empty()) {
      const auto [at, length] = first_special(text);
      plain_ += text.substr(0, at);
      if (length == 0) return;
      flush();
      ids_.push_back(static_cast<std::int32_t>(*tokenizer_->special_id(text.substr(at, length))));
      text.remove_prefix(at + length);
    }
  }
  void content(std::string_view text) { plain_ += text; }
  std::vector<std::int32_t> take() {
    flush();
    return std::move(ids_);
  }

 private:
  /// Where the first special token of a template's text is, and its length; the end of the text and 0.
  [[nodiscard]] std::pair<std::size_t, std::size_t> first_special(std::string_view text) const {
    constexpr std::array<std::pair<char, char>, 2> kBrackets = {{{'<', '>'}, {'[', ']'}}};
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (const auto& [open, close] : kBrackets) {
        if (text[at] != open) continue;
        const auto end = text.find(close, at);
        if (end == std::string_view::npos) continue;
        const std::size_t length = end + 1 - at;
        if (tokenizer_->special_id(text.substr(at, length))) return {at, length};
      }
    }
    return {text.size(), 0};
  }
  void flush() {
    for (const std::uint32_t id : tokenizer_->encode(plain_, text::SpecialTokens::as_text, ids_.empty()))
      ids_.push_back(static_cast<std::int32_t>(id));
    plain_.clear();
  }

  const text::Tokenizer* tokenizer_;
  std::string plain_;
  std::vector<std::int32_t> ids_;
};

/// The Jinja text of a model; empty where it has none.
std::string jinja_of(const std::filesystem::path& directory) {
  std::error_code ignored;
  const auto own = directory / "chat_template.jinja";
  if (std::filesystem::exists(own, ignored)) return core::read_text(own.string());
  const auto config = directory / "tokenizer_config.json";
  if (!std::filesystem::exists(config, ignored)) return "";
  const json settings =
      core::parse_json_object(core::read_text(config.string()), config.string(), "the file");
  json found = settings.value("chat_template", json(""));
  // Several, by name: the default one.
  for (const json& entry : found.is_array() ? json(found) : json::array()) {
    if (entry.is_object() && entry.value("name", json()) == "default")
      found = entry.value("template", json());
  }
  if (!found.is_string()) {
    throw core::InputError(
        fmt::format("{}: chat_template must be a text, or a list with one that is named 'default', not {}",
                    config.string(), core::shown(found)));
  }
  return found.get<std::string>();
}

}  // namespace

const std::vector<ChatTemplate>& ChatTemplate::all() {
  static const std::vector<ChatTemplate> rows = [] {
    const json table = core::parse_json(chat_templates_text(), "data/chat_templates.json", "the table");
    std::vector<ChatTemplate> all;
    for (const json& row : table) {
      ChatTemplate one;
      row.at("name").get_to(one.name_);
      row.at("marks").get_to(one.marks_);
      row.at("begin").get_to(one.begin_);
      row.at("turns").get_to(one.turns_);
      row.at("answer").get_to(one.answer_);
      row.at("stop").get_to(one.stop_);
      one.trims_ = row.value("trim", false);
      all.push_back(std::move(one));
    }
    return all;
  }();
  return rows;
}

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> names;
  for (const ChatTemplate& row : all()) names.push_back(row.name_);
  return names;
}

ChatTemplate ChatTemplate::named(std::string_view name) {
  for (const ChatTemplate& row : all()) {
    if (row.name_ == name) return row;
  }
  throw core::UsageError(core::unknown_name("chat template", name, names()));
}

std::optional<ChatTemplate> ChatTemplate::of_model(const std::filesystem::path& directory) {
  const std::string jinja = jinja_of(directory);
  for (const ChatTemplate& row : all()) {
    const auto is_in = [&](const std::string& mark) { return jinja.find(mark) != std::string::npos; };
    if (!row.marks_.empty() && std::ranges::all_of(row.marks_, is_in)) return row;
  }
  return std::nullopt;
}

std::vector<std::int32_t> ChatTemplate::tokens(std::span<const ChatMessage> messages,
                                               const text::Tokenizer& tokenizer) const {
  Writer text(tokenizer);
  text.literal(begin_);
  std::string before;  // of the first user's turn, where the template has no system's
  bool has_user = false;
  for (const ChatMessage& message : messages) {
    std::string content = trims_ ? trimmed(message.content) : message.content;
    const std::string role = message.role == "developer" ? "system" : message.role;
    const auto turn = turns_.find(role);
    if (turn == turns_.end() && role == "system") {
      before += content;
      before += "\n\n";
      continue;
    }
    if (turn == turns_.end())
      throw core::InputError(fmt::format("messages: role '{}' is none of system, user, assistant",
                                         core::printable(message.role)));
    if (role == "user") {
      content.insert(0, std::exchange(before, {}));
      has_user = true;
    }
    const std::string_view form = turn->second;
    const auto at = form.find(kContent);
    text.literal(form.substr(0, at));
    text.content(content);
    text.literal(form.substr(at + kContent.size()));
  }
  if (!has_user) throw core::InputError("messages: none is of role user");
  text.literal(answer_);
  return text.take();
}

}  // namespace rooflm::serve
