// Requests and answers in the form of OpenAI's API: /v1/completions and /v1/chat/completions.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "serve/chat_template.h"
#include "serve/text_service.h"
#include "text/tokenizer.h"

namespace rooflm::serve {

/// What an HTTP client did wrong, or what is wrong here.
struct ApiError {
  int status = 400;
  std::string type;     ///< "invalid_request_error", ..
  std::string message;  ///< a sentence
  std::string param{};  ///< the key of the request; empty: none

  /// {"error": {"message", "type", "param", "code"}}
  [[nodiscard]] std::string body() const;
};

/// The model as requests see it.
struct ServedModel {
  std::string name;
  text::Tokenizer tokenizer;
  std::int64_t vocab = 0;
  std::int64_t positions = 0;  ///< most tokens of prompt and answer together
  std::int64_t longest_prompt = 0;
  std::optional<ChatTemplate> chat{};
  std::string why_no_chat{};  ///< in a sentence
};

/// A request that was understood.
struct ApiRequest {
  bool is_chat = false;
  bool streams = false, wants_usage = false;
  std::vector<TextRequest> texts{};  ///< one for each choice: n of each prompt
  std::int64_t prompt_tokens = 0;    ///< of all prompts
};

/// Reads the body of a request. `seed` is taken where the request has none. Throws ApiError naming the key.
ApiRequest read_request(std::string_view body, bool is_chat, const ServedModel& model, std::uint64_t seed);

/// Writes the answer to a request, whole or as events of a stream.
class ApiAnswer {
 public:
  ApiAnswer(const ApiRequest& request, const ServedModel& model, std::string id, std::int64_t created);

  /// Takes in what a choice has new, and returns its events ("data: ..\n\n") where the request streams.
  std::string add(std::size_t index, const TextNews& news);
  /// The last events of a stream, or the whole answer.
  [[nodiscard]] std::string finish() const;

 private:
  struct Choice {
    std::string text;
    nlohmann::json logprobs;
    std::string finish_reason;
    std::int64_t offset = 0;  ///< characters of the text before the next token
    bool has_begun = false;
  };
  [[nodiscard]] nlohmann::json head(bool is_chunk) const;
  [[nodiscard]] nlohmann::json usage() const;
  [[nodiscard]] nlohmann::json logprobs_of(const std::vector<MadeToken>& tokens, Choice& choice) const;

  const ServedModel* model_;
  bool is_chat_, streams_, wants_usage_, wants_logprobs_;
  std::string id_;
  std::int64_t created_;
  std::int64_t prompt_tokens_, made_ = 0;
  std::vector<Choice> choices_;
};

}  // namespace rooflm::serve
