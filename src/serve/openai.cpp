// Requests and answers in the form of OpenAI's API: /v1/completions and /v1/chat/completions.
#include "serve/openai.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/json.h"
#include "core/printable.h"

namespace rooflm::serve {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostChoices = 128;  // prompts times n
constexpr std::int64_t kMostLogprobs = 20;
constexpr std::size_t kMostStops = 16;
constexpr std::size_t kMostStopBytes = 1024;
constexpr std::int64_t kDefaultTokens = 16;  // of completions, as OpenAI has it

/// Requests of no user are of user 0.
std::uint64_t user_of(const std::string& name) { return name.empty() ? 0 : std::hash<std::string>{}(name); }

[[noreturn]] void refuse(const std::string& param, const std::string& message) {
  throw ApiError{.status = 400, .type = "invalid_request_error", .message = message, .param = param};
}

/// The keys of a request, with their types and ranges. null counts as absent.
class Keys {
 public:
  explicit Keys(const json& body) : body_(&body) {}

  [[nodiscard]] const json* find(const std::string& key) const {
    const auto found = body_->find(key);
    return found == body_->end() || found->is_null() ? nullptr : &*found;
  }
  [[nodiscard]] double number(const std::string& key, double otherwise, double least, double most) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number())
      refuse(key, fmt::format("{} must be a number, not {}", key, core::shown(*value)));
    const double number = value->get<double>();
    if (!(number >= least && number <= most))
      refuse(key, fmt::format("{} must be from {:g} to {:g}, not {:g}", key, least, most, number));
    return number;
  }
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& key, std::int64_t least,
                                                    std::int64_t most) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer())
      refuse(key, fmt::format("{} must be a whole number, not {}", key, core::shown(*value)));
    const double number = value->get<double>();
    if (number < static_cast<double>(least) || number > static_cast<double>(most))
      refuse(key, fmt::format("{} must be from {} to {}, not {}", key, least, most, core::shown(*value)));
    return value->get<std::int64_t>();
  }
  [[nodiscard]] bool flag(const std::string& key, bool otherwise = false) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean())
      refuse(key, fmt::format("{} must be true or false, not {}", key, core::shown(*value)));
    return value->get<bool>();
  }
  [[nodiscard]] std::string text(const std::string& key) const {
    const json* value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string())
      refuse(key, fmt::format("{} must be a string, not {}", key, core::shown(*value)));
    return value->get<std::string>();
  }

 private:
  const json* body_;
};

/// What is not done must not be ignored in silence.
void refuse_what_is_not_done(const Keys& keys) {
  for (const char* key : {"logit_bias", "suffix", "tools", "functions", "guided_json", "prompt_logprobs"}) {
    const json* value = keys.find(key);
    if (value != nullptr && !value->empty()) refuse(key, fmt::format("{} is not supported", key));
  }
  for (const char* key : {"presence_penalty", "frequency_penalty"}) {
    constexpr double kMost = 2;
    if (keys.number(key, 0, -kMost, kMost) != 0)
      refuse(key, fmt::format("{} is not supported: leave it 0", key));
  }
  if (keys.number("repetition_penalty", 1, 0, 2) != 1)
    refuse("repetition_penalty", "repetition_penalty is not supported: leave it 1");
  if (keys.flag("echo")) refuse("echo", "echo is not supported");
  if (const json* format = keys.find("response_format");
      format != nullptr && format->is_object() && format->value("type", "text") != "text")
    refuse("response_format", "only text is supported");
}

std::vector<std::string> stop_words(const Keys& keys) {
  const json* value = keys.find("stop");
  if (value == nullptr) return {};
  const json list = value->is_string() ? json::array({*value}) : *value;
  if (!list.is_array() || list.size() > kMostStops)
    refuse("stop", fmt::format("stop must be a string or a list of at most {}", kMostStops));
  std::vector<std::string> words;
  for (const json& word : list) {
    if (!word.is_string() || word.get_ref<const std::string&>().empty() ||
        word.get_ref<const std::string&>().size() > kMostStopBytes)
      refuse("stop", fmt::format("stop must be of texts of 1 to {} bytes, not {}", kMostStopBytes,
                                 core::shown(word)));
    words.push_back(word.get<std::string>());
  }
  return words;
}

std::vector<std::int32_t> encoded(const std::string& text, const ServedModel& model) {
  std::vector<std::int32_t> tokens;
  for (const std::uint32_t id : model.tokenizer.encode(text)) tokens.push_back(static_cast<std::int32_t>(id));
  if (tokens.empty()) {
    const auto eot = model.tokenizer.eot();
    if (!eot)
      refuse("prompt", "the prompt is empty, and the tokenizer has no end-of-text token to begin with");
    tokens.push_back(static_cast<std::int32_t>(*eot));
  }
  return tokens;
}

std::vector<std::int32_t> ids_of(const json& list, const ServedModel& model) {
  std::vector<std::int32_t> tokens;
  for (const json& id : list) {
    if (!id.is_number_integer() || id.get<double>() < 0 ||
        id.get<double>() >= static_cast<double>(model.vocab))
      refuse("prompt",
             fmt::format("token ids must be whole numbers below {}, not {}", model.vocab, core::shown(id)));
    tokens.push_back(id.get<std::int32_t>());
  }
  return tokens;
}

/// "prompt": a text, a list of texts, a list of token ids, or a list of such lists.
std::vector<std::vector<std::int32_t>> prompts_of(const Keys& keys, const ServedModel& model) {
  const json* value = keys.find("prompt");
  if (value == nullptr) refuse("prompt", "prompt is missing");
  if (value->is_string()) return {encoded(value->get<std::string>(), model)};
  if (!value->is_array() || value->empty())
    refuse("prompt", "prompt must be a text, or a list of texts or token ids");
  if (value->front().is_number()) return {ids_of(*value, model)};
  if (std::ssize(*value) > kMostChoices)
    refuse("prompt", fmt::format("at most {} prompts at once", kMostChoices));
  std::vector<std::vector<std::int32_t>> prompts;
  for (const json& one : *value) {
    if (one.is_string()) {
      prompts.push_back(encoded(one.get<std::string>(), model));
    } else if (one.is_array() && !one.empty()) {
      prompts.push_back(ids_of(one, model));
    } else {
      refuse("prompt", "prompt must be a text, or a list of texts or token ids");
    }
  }
  return prompts;
}

/// "content": a text, or parts of type text.
std::string content_of(const json& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return "";
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  for (const json& part : content->is_array() ? *content : json::array()) {
    if (!part.is_object() || part.value("type", "") != "text" || !part.contains("text") ||
        !part["text"].is_string())
      refuse("messages", "content must be a text, or a list of parts of type text");
    text += part["text"].get<std::string>();
  }
  return text;
}

std::vector<std::int32_t> conversation(const Keys& keys, const ServedModel& model) {
  if (!model.chat) refuse("messages", model.why_no_chat);
  const json* value = keys.find("messages");
  if (value == nullptr || !value->is_array() || value->empty())
    refuse("messages", "messages must be a list of at least one message");
  std::vector<ChatMessage> messages;
  for (const json& message : *value) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      refuse("messages", "each message must have a role, a text");
    messages.push_back({message["role"].get<std::string>(), content_of(message)});
  }
  try {
    return model.chat->tokens(messages, model.tokenizer);
  } catch (const core::InputError& error) {
    refuse("messages", error.what());
  }
}

train::SamplingOptions sampling_of(const Keys& keys) {
  constexpr double kMostTemperature = 100;
  constexpr double kLeastShare = 1e-9;
  train::SamplingOptions sampling{.temperature = keys.number("temperature", 1, 0, kMostTemperature),
                                  .top_p = keys.number("top_p", 1, kLeastShare, 1),
                                  .min_p = keys.number("min_p", 0, 0, 1)};
  // -1 is vLLM's word for all.
  const auto top_k = keys.integer("top_k", -1, std::numeric_limits<std::int32_t>::max());
  sampling.top_k = std::max<std::int64_t>(top_k.value_or(0), 0);
  sampling.stop_at_eot = !keys.flag("ignore_eos");
  return sampling;
}

/// Completions have a number, chats a flag and a number.
std::optional<std::int64_t> logprobs_of(const Keys& keys, bool is_chat) {
  if (!is_chat) return keys.integer("logprobs", 0, kMostLogprobs);
  if (!keys.flag("logprobs")) return std::nullopt;
  return keys.integer("top_logprobs", 0, kMostLogprobs).value_or(0);
}

/// The most tokens to make. Throws where they do not fit beside the prompt.
std::int64_t most_tokens(const Keys& keys, bool is_chat, std::int64_t prompt, const ServedModel& model) {
  if (prompt > model.longest_prompt)
    refuse(
        is_chat ? "messages" : "prompt",
        fmt::format("the prompt has {} tokens; this server reads at most {}", prompt, model.longest_prompt));
  const std::int64_t room = model.positions - prompt;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  auto asked = keys.integer("max_tokens", 1, kMost);
  if (!asked && is_chat) asked = keys.integer("max_completion_tokens", 1, kMost);
  if (!asked) return std::min(room + 1, is_chat ? room + 1 : kDefaultTokens);
  if (*asked > room + 1)
    refuse(
        "max_tokens",
        fmt::format("{} tokens of the prompt and {} new ones are more than the {} positions of this server",
                    prompt, *asked, model.positions));
  return *asked;
}

/// Bytes of a token as text: what is no UTF-8 becomes U+FFFD.
std::string shown_token(std::int32_t id, const text::Tokenizer& tokenizer) {
  if (id >= static_cast<std::int32_t>(tokenizer.vocab_size())) return "";
  train::Utf8Stream stream;
  std::string text = stream.append(tokenizer.token_bytes(static_cast<std::uint32_t>(id)));
  return text + stream.finish();
}

std::string event(const json& data) { return "data: " + data.dump() + "\n\n"; }

}  // namespace

std::string ApiError::body() const {
  const json of_param = param.empty() ? json(nullptr) : json(param);
  return json{{"error",
               {{"message", core::printable(message, core::kUnlimited)},
                {"type", type},
                {"param", of_param},
                {"code", status}}}}
      .dump();
}

ApiRequest read_request(std::string_view body, bool is_chat, const ServedModel& model, std::uint64_t seed) {
  json parsed;
  try {
    parsed = core::parse_json_object(body, "the request", "the body");
  } catch (const core::InputError& error) {
    refuse("", error.what());
  }
  const Keys keys(parsed);
  if (const std::string name = keys.text("model"); !name.empty() && name != model.name) {
    throw ApiError{.status = 404,
                   .type = "not_found_error",
                   .message = fmt::format("the model '{}' is not served here; '{}' is", core::printable(name),
                                          model.name),
                   .param = "model"};
  }
  refuse_what_is_not_done(keys);
  ApiRequest request{.is_chat = is_chat, .streams = keys.flag("stream")};
  if (const json* options = keys.find("stream_options"); options != nullptr) {
    if (!options->is_object()) refuse("stream_options", "stream_options must be an object");
    request.wants_usage = Keys(*options).flag("include_usage");
  }
  const auto prompts =
      is_chat ? std::vector<std::vector<std::int32_t>>{conversation(keys, model)} : prompts_of(keys, model);
  const std::int64_t n = keys.integer("n", 1, kMostChoices).value_or(1);
  if (const auto best_of = keys.integer("best_of", 1, kMostChoices); best_of && *best_of != n)
    refuse("best_of", "best_of is not supported");
  if (n * std::ssize(prompts) > kMostChoices)
    refuse("n",
           fmt::format("{} prompts of {} answers each: at most {} at once", prompts.size(), n, kMostChoices));
  TextRequest text{.sampling = sampling_of(keys),
                   .stop = stop_words(keys),
                   .top_logprobs = logprobs_of(keys, is_chat),
                   .user = user_of(keys.text("user"))};
  if (is_chat) {
    for (const std::string& word : model.chat->stop()) {
      const auto id = model.tokenizer.special_id(word);
      if (id) {
        text.stop_tokens.push_back(static_cast<std::int32_t>(*id));
      } else {
        text.stop.push_back(word);
      }
    }
  }
  constexpr std::int64_t kAnySeed = std::numeric_limits<std::int64_t>::max();
  const auto own_seed = keys.integer("seed", -kAnySeed, kAnySeed);
  const std::uint64_t first_seed = own_seed ? static_cast<std::uint64_t>(*own_seed) : seed;
  for (const std::vector<std::int32_t>& prompt : prompts) {
    request.prompt_tokens += std::ssize(prompt);
    text.prompt = prompt;
    text.sampling.tokens = most_tokens(keys, is_chat, std::ssize(prompt), model);
    for (std::int64_t i = 0; i < n; ++i) {
      text.sampling.seed = first_seed + static_cast<std::uint64_t>(i);
      request.texts.push_back(text);
    }
  }
  return request;
}

ApiAnswer::ApiAnswer(const ApiRequest& request, const ServedModel& model, std::string id,
                     std::int64_t created)
    : model_(&model),
      is_chat_(request.is_chat),
      streams_(request.streams),
      wants_usage_(request.wants_usage),
      wants_logprobs_(request.texts.front().top_logprobs.has_value()),
      id_(std::move(id)),
      created_(created),
      prompt_tokens_(request.prompt_tokens),
      choices_(request.texts.size()) {}

json ApiAnswer::head(bool is_chunk) const {
  const char* object = !is_chat_ ? "text_completion" : is_chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_->name}};
}

json ApiAnswer::usage() const {
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", made_},
          {"total_tokens", prompt_tokens_ + made_}};
}

/// Completions have parallel lists, chats a list of objects.
json ApiAnswer::logprobs_of(const std::vector<MadeToken>& tokens, Choice& choice) const {
  json chat = json::array();
  json texts = json::array();
  json values = json::array();
  json tops = json::array();
  json offsets = json::array();
  for (const MadeToken& token : tokens) {
    const std::string shown = shown_token(token.id, model_->tokenizer);
    const auto entry = [&](std::int32_t id, double logprob) {
      const std::string text = shown_token(id, model_->tokenizer);
      json bytes = json::array();
      if (id < static_cast<std::int32_t>(model_->tokenizer.vocab_size())) {
        for (const char byte : model_->tokenizer.token_bytes(static_cast<std::uint32_t>(id)))
          bytes.push_back(static_cast<unsigned char>(byte));
      }
      return json{{"token", text}, {"logprob", logprob}, {"bytes", bytes}};
    };
    json one = entry(token.id, token.logprob);
    one["top_logprobs"] = json::array();
    json top = json::object();
    for (const auto& [id, logprob] : token.top) {
      one["top_logprobs"].push_back(entry(id, logprob));
      top[shown_token(id, model_->tokenizer)] = logprob;
    }
    chat.push_back(std::move(one));
    texts.push_back(shown);
    values.push_back(token.logprob);
    tops.push_back(std::move(top));
    offsets.push_back(choice.offset);
    choice.offset += static_cast<std::int64_t>(shown.size());
  }
  if (is_chat_) return {{"content", chat}};
  return {{"tokens", texts}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

std::string ApiAnswer::add(std::size_t index, const TextNews& news) {
  Choice& choice = choices_.at(index);
  made_ += std::ssize(news.tokens);
  const json logprobs = wants_logprobs_ ? logprobs_of(news.tokens, choice) : json(nullptr);
  if (news.finish) choice.finish_reason = name_of(*news.finish);
  if (!streams_) {
    choice.text += news.text;
    if (choice.logprobs.is_null()) {
      choice.logprobs = logprobs;
    } else {
      for (auto& [key, values] : choice.logprobs.items())
        values.insert(values.end(), logprobs[key].begin(), logprobs[key].end());
    }
    return "";
  }
  if (news.finish == Finish::failed || (news.finish == Finish::cancelled && !news.error.empty())) {
    const ApiError error{.status = 500, .type = "server_error", .message = news.error};
    return "data: " + error.body() + "\n\n";
  }
  std::string events;
  json chunk = head(true);
  const auto send = [&](json part, const json& reason) {
    part["index"] = index;
    part["logprobs"] = logprobs;
    part["finish_reason"] = reason;
    chunk["choices"] = json::array({std::move(part)});
    events += event(chunk);
  };
  if (is_chat_ && !choice.has_begun) send({{"delta", {{"role", "assistant"}, {"content", ""}}}}, nullptr);
  choice.has_begun = true;
  const json reason = news.finish ? json(choice.finish_reason) : json(nullptr);
  if (news.text.empty() && !news.finish && !wants_logprobs_) return events;
  if (is_chat_) {
    const json delta = news.text.empty() ? json::object() : json{{"content", news.text}};
    send({{"delta", delta}}, reason);
  } else {
    send({{"text", news.text}}, reason);
  }
  return events;
}

std::string ApiAnswer::finish() const {
  if (streams_) {
    std::string events;
    if (wants_usage_) {
      json chunk = head(true);
      chunk["choices"] = json::array();
      chunk["usage"] = usage();
      events += event(chunk);
    }
    return events + "data: [DONE]\n\n";
  }
  json whole = head(false);
  whole["choices"] = json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    json part = {{"index", i}, {"logprobs", choice.logprobs}, {"finish_reason", choice.finish_reason}};
    if (is_chat_) {
      part["message"] = {{"role", "assistant"}, {"content", choice.text}};
    } else {
      part["text"] = choice.text;
    }
    whole["choices"].push_back(std::move(part));
  }
  whole["usage"] = usage();
  return whole.dump();
}

}  // namespace rooflm::serve
