// Turns of a conversation as the text that a model was trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace rooflm::serve {

/// The text of data/chat_templates.json, embedded in the binary.
std::string_view chat_templates_text();

struct ChatMessage {
  std::string role, content;
};

/// A row of data/chat_templates.json. A model's own template is a program in Jinja. It is not run: a row is
/// its form if all the row's `marks` are in its source, and what it does besides (default system texts,
/// tools, thinking) is left out.
class ChatTemplate {
 public:
  /// Throws core::UsageError with a suggestion.
  static ChatTemplate named(std::string_view name);
  /// That of a Hugging Face directory (chat_template.jinja, or in tokenizer_config.json); nothing where it
  /// has none, or one that no row describes. Throws core::InputError for a damaged file.
  static std::optional<ChatTemplate> of_model(const std::filesystem::path& directory);
  static std::vector<std::string> names();

  [[nodiscard]] const std::string& name() const { return name_; }
  /// The conversation up to where the answer begins. Special tokens are those of the template only: content
  /// cannot forge a turn. Throws core::InputError for a role that it does not have, and where no message is
  /// the user's.
  [[nodiscard]] std::vector<std::int32_t> tokens(std::span<const ChatMessage> messages,
                                                 const text::Tokenizer& tokenizer) const;
  /// Words that end an answer.
  [[nodiscard]] const std::vector<std::string>& stop() const { return stop_; }

 private:
  std::string name_, begin_, answer_;
  std::vector<std::string> marks_, stop_;
  std::map<std::string, std::string> turns_;  ///< by role, with "{content}"
  bool trims_ = false;

  static const std::vector<ChatTemplate>& all();
};

}  // namespace rooflm::serve
