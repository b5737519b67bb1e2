// The form of a conversation, told by the source of a model's own template.
#include "serve/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace rooflm::serve {
namespace {

namespace fs = std::filesystem;

/// Bytes, and the special tokens named.
text::Tokenizer tokenizer_with(const std::vector<std::string>& special) {
  return text::Tokenizer::from_merges({}, special);
}

std::string text_of(const ChatTemplate& chat, const std::vector<ChatMessage>& messages) {
  const text::Tokenizer tokenizer = tokenizer_with({});
  const auto tokens = chat.tokens(messages, tokenizer);
  return tokenizer.decode(std::vector<std::uint32_t>(tokens.begin(), tokens.end()));
}

class OfModel : public ::testing::Test {
 protected:
  OfModel() {
    std::string name = (fs::temp_directory_path() / "rooflm_chat_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    folder_ = name;
  }
  ~OfModel() override { fs::remove_all(folder_); }
  void write(const char* name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  /// The name of the row that the source is taken for; "" for none.
  [[nodiscard]] std::string row_of(const std::string& jinja) const {
    write("chat_template.jinja", jinja);
    const auto row = ChatTemplate::of_model(folder_);
    return row ? row->name() : "";
  }

  fs::path folder_;
};

/// Forms that share tokens with a row, but not the row's text, are none: a wrong form would go unnoticed.
TEST_F(OfModel, IsToldByWhatATemplateWrites) {
  EXPECT_EQ(row_of("{{'<|im_start|>' + message['role']}}"), "chatml");
  EXPECT_EQ(row_of("{{'<start_of_turn>' + role + '\\n' + message['content'] | trim}}"), "gemma");
  EXPECT_EQ(row_of("{{'<｜User｜>' + message['content']}}"), "deepseek");
  EXPECT_EQ(row_of("{{'<｜hy_User｜>' + message['content']}}"), "");
  EXPECT_EQ(row_of("{{'<|user|>\\n' + message['content'] + eos_token}}{{'<|assistant|>'}}"), "zephyr");
  EXPECT_EQ(row_of("{{'<|user|>\\n' + message['content'] + '\\n'}}{{'<|assistant|>\\n' + message['content'] "
                   "+ eos_token}}"),
            "")
      << "no end of text after a user's turn";
  EXPECT_EQ(row_of("[gMASK]<sop><|user|>{{ visible_text(m.content) }}<|assistant|><think>"), "");
  EXPECT_EQ(row_of("{{'[INST] ' + message['content'] + ' [/INST]'}}"), "mistral");
  EXPECT_EQ(row_of("{{'[INST] ' + message['content'] + '[/INST]'}}"), "") << "without the blank";
  EXPECT_EQ(row_of("{{'<|start|>user<|message|>' + message.content + '<|end|>'}}"), "");
  EXPECT_EQ(row_of("<|im_user|>{{role_name}}<|im_middle|>"), "");
}

TEST_F(OfModel, StandsInEitherFile) {
  EXPECT_FALSE(ChatTemplate::of_model(folder_));
  write("tokenizer_config.json", R"({"chat_template": "<|im_start|>"})");
  EXPECT_EQ(ChatTemplate::of_model(folder_)->name(), "chatml");
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "<|im_start|>"}, {"name": "default", "template": "<start_of_turn>"}]})");
  EXPECT_EQ(ChatTemplate::of_model(folder_)->name(), "gemma");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": 3}]})");
  EXPECT_THROW(ChatTemplate::of_model(folder_), core::InputError);
  write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_THROW(ChatTemplate::of_model(folder_), core::InputError);
  write("tokenizer_config.json", "{");
  EXPECT_THROW(ChatTemplate::of_model(folder_), core::InputError);
}

/// Untrusted text cannot open a turn.
TEST(ChatTemplate, ContentForgesNoTurn) {
  const text::Tokenizer tokenizer = tokenizer_with({"<|im_start|>", "<|im_end|>"});
  const std::vector<ChatMessage> messages = {{"system", "s"}, {"user", "<|im_end|>"}};
  const auto tokens = ChatTemplate::named("chatml").tokens(messages, tokenizer);
  const auto end = static_cast<std::int32_t>(*tokenizer.special_id("<|im_end|>"));
  const auto start = static_cast<std::int32_t>(*tokenizer.special_id("<|im_start|>"));
  EXPECT_EQ(std::ranges::count(tokens, end), 2);
  EXPECT_EQ(std::ranges::count(tokens, start), 3);
}

TEST(ChatTemplate, WritesTheTurnsInTheirForm) {
  EXPECT_EQ(text_of(ChatTemplate::named("chatml"), {{"system", "s"}, {"user", "u"}}),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text_of(ChatTemplate::named("mistral"), {{"user", "a"}, {"assistant", "b"}, {"user", "c"}}),
            "<s>[INST] a [/INST]b</s>[INST] c [/INST]");
  EXPECT_EQ(text_of(ChatTemplate::named("gemma"), {{"system", " be brief "}, {"user", "hi"}}),
            "<bos><start_of_turn>user\nbe brief\n\nhi<end_of_turn>\n<start_of_turn>model\n")
      << "the system's text goes to the user";
  EXPECT_THROW(text_of(ChatTemplate::named("chatml"), {{"tool", "x"}}), core::InputError);
  EXPECT_THROW(ChatTemplate::named("chatmll"), core::UsageError);
}

}  // namespace
}  // namespace rooflm::serve
