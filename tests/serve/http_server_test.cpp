// A server and its clients in one process, on a tiny model.
#include "serve/http_server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "serve/batcher.h"
#include "tests/train/training_testing.h"
#include "train/decoder.h"
#include "train/paged_decoder.h"
#include "train/slot_decoder.h"

namespace rooflm::serve {
namespace {

using nlohmann::json;

constexpr std::int64_t kPositions = 48;

/// Bytes, and ChatML's tokens.
text::Tokenizer byte_tokenizer() {
  return text::Tokenizer::from_merges(
      {}, std::vector<std::string>{"<|endoftext|>", "<|im_start|>", "<|im_end|>"});
}

class Http : public ::testing::Test {
 protected:
  Http() : backend_(train::testing::backend_for(compile::EngineKind::fused)) {
    model::ModelConfig config = train::testing::tiny_model(model::Arch::llama);
    config.vocab = 259;
    config.padded_vocab = 320;
    config.max_seq = 0;
    session_ = std::make_unique<train::Session>(
        *backend_, config,
        compile::StepOptions{.engine = compile::EngineKind::fused,
                             .attention = compile::default_attention(compile::EngineKind::fused)});
    decoder_ =
        std::make_unique<train::SlotDecoder>(*session_, model::CacheSize{.batch = 2, .positions = kPositions},
                                             32, train::SlotDecoder::Choice::caller);
    session_->initialise(3);
    decoder_->warm_up();
    model_ = std::make_unique<ServedModel>(ServedModel{.name = "tiny",
                                                       .tokenizer = byte_tokenizer(),
                                                       .vocab = config.vocab,
                                                       .positions = kPositions,
                                                       .longest_prompt = 32,
                                                       .chat = ChatTemplate::named("chatml")});
  }
  ~Http() override { stop(); }

  void start(const HttpOptions& options = {.port = 0}, std::size_t most_waiting = 16) {
    service_ =
        std::make_unique<TextService>(*decoder_, model_->tokenizer, most_waiting, std::chrono::minutes(1));
    server_ = std::make_unique<HttpServer>(*service_, *model_, options);
    batches_ = std::thread([this] { run_batches(*service_, Schedule::fcfs); });
  }
  void stop() {
    if (!service_) return;
    service_->stop();
    batches_.join();
    server_.reset();
    service_.reset();
  }

  [[nodiscard]] httplib::Client client() const {
    httplib::Client client("127.0.0.1", server_->port());
    client.set_read_timeout(60);
    return client;
  }
  /// Status and body.
  [[nodiscard]] std::pair<int, json> post(const json& body, const char* path = "/v1/completions") const {
    return post_text(body.dump(), path);
  }
  [[nodiscard]] std::pair<int, json> post_text(const std::string& body,
                                               const char* path = "/v1/completions") const {
    const auto result = client().Post(path, body, "application/json");
    if (!result) return {0, {}};
    return {result->status, json::parse(result->body, nullptr, false)};
  }

  /// What the model says greedily, read alone.
  std::string alone(const std::string& prompt, std::size_t count) {
    std::vector<std::int32_t> text;
    for (const std::uint32_t id : model_->tokenizer.encode(prompt))
      text.push_back(static_cast<std::int32_t>(id));
    train::Decoder decoder(*session_, {.batch = 1, .positions = kPositions});
    const std::span<const std::int32_t> seen(text);
    const auto best = [](const std::vector<float>& logits) {
      return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
    };
    std::vector<std::int32_t> made = {best(decoder.prefill({&seen, 1}).at(0))};
    while (made.size() < count) made.push_back(best(decoder.decode({&made.back(), 1}).at(0)));
    train::Utf8Stream stream;
    std::string out;
    for (const std::int32_t id : made)
      out += stream.append(model_->tokenizer.token_bytes(static_cast<std::uint32_t>(id)));
    return out + stream.finish();
  }

  std::unique_ptr<backends::Backend> backend_;
  std::unique_ptr<train::Session> session_;
  std::unique_ptr<train::BatchDecoder> decoder_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<TextService> service_;
  std::unique_ptr<HttpServer> server_;
  std::thread batches_;
};

TEST_F(Http, ManyClientsGetWhatTheModelSaysAlone) {
  const std::vector<std::string> prompts = {"In the beginning", "a", "and God said", "light", "xyz", "12345"};
  std::vector<std::string> expected;
  for (const std::string& prompt : prompts) expected.push_back(alone(prompt, 9));
  start();
  std::vector<std::future<std::pair<int, json>>> answers;
  for (const std::string& prompt : prompts) {
    answers.push_back(std::async(std::launch::async, [&, prompt] {
      return post({{"model", "tiny"},
                   {"prompt", prompt},
                   {"max_tokens", 9},
                   {"temperature", 0},
                   {"ignore_eos", true}});
    }));
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto [status, body] = answers[i].get();
    ASSERT_EQ(status, 200) << body;
    EXPECT_EQ(body["object"], "text_completion");
    EXPECT_EQ(body["choices"][0]["text"], expected[i]) << prompts[i];
    EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(body["usage"]["completion_tokens"], 9);
    EXPECT_EQ(body["usage"]["prompt_tokens"], prompts[i].size());
  }
}

/// Keys and values in few blocks, prompts in chunks, guessed tokens.
class PagedHttp : public Http {
 protected:
  PagedHttp() {
    decoder_ = std::make_unique<train::PagedDecoder>(*session_, train::PagedOptions{.slots = 4,
                                                                                    .positions = kPositions,
                                                                                    .longest_prompt = 32,
                                                                                    .chunk = 4,
                                                                                    .block = 4,
                                                                                    .pool = 60,
                                                                                    .guesses = 3});
    decoder_->warm_up();
  }
};

TEST_F(PagedHttp, ManyClientsGetWhatTheModelSaysAlone) {
  const std::vector<std::string> prompts = {"In the beginning", "a",   "and God said",
                                            "abababababab",     "xyz", "12345"};
  std::vector<std::string> expected;
  for (const std::string& prompt : prompts) expected.push_back(alone(prompt, 15));
  start();
  std::vector<std::future<std::pair<int, json>>> answers;
  for (const std::string& prompt : prompts) {
    answers.push_back(std::async(std::launch::async, [&, prompt] {
      return post({{"prompt", prompt}, {"max_tokens", 15}, {"temperature", 0}, {"ignore_eos", true}});
    }));
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto [status, body] = answers[i].get();
    ASSERT_EQ(status, 200) << body;
    EXPECT_EQ(body["choices"][0]["text"], expected[i]) << prompts[i];
    EXPECT_EQ(body["usage"]["completion_tokens"], 15);
  }
  const ServerMetrics counts = service_->metrics();
  EXPECT_GT(counts.guessed_tokens, 0U);
  EXPECT_LE(counts.accepted_tokens, counts.guessed_tokens);
  EXPECT_EQ(counts.generation_tokens, 6U * 15);
  const auto& paged = dynamic_cast<const train::PagedDecoder&>(*decoder_);
  stop();
  EXPECT_EQ(paged.free_blocks(), 15U) << "who is done gives its blocks back";
}

/// Sampling: a guess is kept where it is what would have been drawn.
TEST_F(PagedHttp, GuessesDoNotChangeWhatASeedGives) {
  const json body = {{"prompt", "abcabcabcabc"}, {"max_tokens", 20},   {"seed", 5},
                     {"temperature", 0.7},       {"ignore_eos", true}, {"logprobs", 2}};
  start();
  const json guessed = post(body).second.at("choices");
  stop();
  decoder_ =
      std::make_unique<train::SlotDecoder>(*session_, model::CacheSize{.batch = 2, .positions = kPositions},
                                           32, train::SlotDecoder::Choice::caller);
  decoder_->warm_up();
  start();
  const json plain = post(body).second.at("choices");
  EXPECT_EQ(guessed[0]["text"], plain[0]["text"]);
  EXPECT_EQ(guessed[0]["logprobs"]["tokens"], plain[0]["logprobs"]["tokens"]);
}

/// The events of a stream, joined, are the answer that comes at once.
TEST_F(Http, AStreamSaysTheSame) {
  start();
  json body = {
      {"prompt", "abc"}, {"max_tokens", 12}, {"seed", 5}, {"temperature", 1.5}, {"ignore_eos", true}};
  const json whole = post(body).second;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const auto result = client().Post("/v1/completions", body.dump(), "application/json");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream");
  std::string text;
  std::string finish;
  json usage;
  std::istringstream lines(result->body);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: ")) continue;
    last = line.substr(6);
    if (last == "[DONE]") continue;
    const json event = json::parse(last);
    if (event.contains("usage") && !event["usage"].is_null()) usage = event["usage"];
    if (event["choices"].empty()) continue;
    text += event["choices"][0]["text"];
    if (event["choices"][0]["finish_reason"].is_string()) finish = event["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(last, "[DONE]");
  EXPECT_EQ(text, whole["choices"][0]["text"]);
  EXPECT_EQ(finish, "length");
  EXPECT_EQ(usage, whole["usage"]);
}

TEST_F(Http, ChatsHaveTheirForm) {
  start();
  const json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                     {"max_tokens", 3},
                     {"logprobs", true},
                     {"top_logprobs", 2}};
  const auto [status, answer] = post(body, "/v1/chat/completions");
  ASSERT_EQ(status, 200) << answer;
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  const json& tokens = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(tokens.size(), answer["usage"]["completion_tokens"]);
  for (const json& token : tokens) {
    EXPECT_LE(token["logprob"], 0.0);
    EXPECT_EQ(token["top_logprobs"].size(), 2U);
    EXPECT_GE(token["top_logprobs"][0]["logprob"], token["top_logprobs"][1]["logprob"]);
  }
}

TEST_F(Http, SeveralPromptsAndSeveralAnswers) {
  start();
  const auto [status, answer] =
      post({{"prompt", {"a", "bc"}}, {"n", 2}, {"max_tokens", 4}, {"temperature", 0}, {"ignore_eos", true}});
  ASSERT_EQ(status, 200) << answer;
  ASSERT_EQ(answer["choices"].size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(answer["choices"][i]["index"], i);
  EXPECT_EQ(answer["choices"][0]["text"], answer["choices"][1]["text"]);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 16);
}

TEST_F(Http, AStopWordEndsTheTextBeforeIt) {
  start();
  json body = {
      {"prompt", "abc"}, {"max_tokens", 40}, {"seed", 5}, {"temperature", 1.5}, {"ignore_eos", true}};
  const std::string text = post(body).second["choices"][0]["text"];
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  const auto at = std::find_if(text.begin() + 3, text.end(), is_ascii);
  ASSERT_NE(at, text.end());
  const std::string word(1, *at);
  body["stop"] = word;
  const json answer = post(body).second;
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][0]["text"], text.substr(0, text.find(word)));
  EXPECT_LT(answer["usage"]["completion_tokens"], 40);
}

TEST_F(Http, WrongRequestsAreToldWhatIsWrong) {
  start();
  struct Case {
    std::string body;
    int status;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"{", 400, "the request"},
      {"[1]", 400, "object"},
      {R"({"max_tokens": 3})", 400, "prompt is missing"},
      {R"({"prompt": "a", "max_tokens": 0})", 400, "max_tokens must be from 1"},
      {R"({"prompt": "a", "max_tokens": 1e30})", 400, "max_tokens must be a whole number"},
      {R"({"prompt": "a", "max_tokens": 1000})", 400, "more than the 48 positions"},
      {R"({"prompt": "a", "temperature": "hot"})", 400, "temperature must be a number"},
      {R"({"prompt": "a", "temperature": -1})", 400, "temperature must be from 0"},
      {R"({"prompt": [1, 259]})", 400, "below 259"},
      {R"({"prompt": [1, -1]})", 400, "below 259"},
      {R"({"prompt": {"a": 1}})", 400, "prompt must be"},
      {R"({"prompt": [[]]})", 400, "prompt must be"},
      {R"({"prompt": "a", "n": 200})", 400, "n must be from 1"},
      {R"({"prompt": "a", "stop": ["", "x"]})", 400, "stop must be"},
      {R"({"prompt": "a", "logit_bias": {"5": 1}})", 400, "logit_bias is not supported"},
      {R"({"prompt": "a", "stream_options": 3})", 400, "stream_options must be"},
      {R"({"prompt": "a", "model": "gpt-4"})", 404, "is not served here"},
      {R"({"prompt": ")" + std::string(33, 'x') + R"("})", 400, "reads at most 32"},
      {"{\"prompt\": \"\xff\"}", 400, "the request"},
      {std::string(100'000, '['), 400, "the request"},
  };
  for (const Case& wrong : cases) {
    const auto [status, answer] = post_text(wrong.body);
    EXPECT_EQ(status, wrong.status) << wrong.body.substr(0, 80) << answer;
    ASSERT_TRUE(answer.contains("error")) << wrong.body.substr(0, 80) << answer;
    EXPECT_NE(answer["error"]["message"].get<std::string>().find(wrong.says), std::string::npos) << answer;
  }
  EXPECT_EQ(post({{"messages", {{{"role", "wizard"}, {"content", "x"}}}}}, "/v1/chat/completions").first,
            400);
  EXPECT_EQ(post({{"messages", {{{"role", "system"}, {"content", "x"}}}}}, "/v1/chat/completions").first,
            400);
  EXPECT_EQ(post({{"prompt", "x"}}, "/v1/nowhere").first, 404);
  EXPECT_EQ(service_->metrics().running, 0);
}

TEST_F(Http, ABodyThatIsTooLargeIsRefused) {
  start({.port = 0, .most_body_bytes = 1000});
  EXPECT_EQ(post({{"prompt", std::string(2000, 'x')}}).first, 413);
  EXPECT_EQ(post({{"prompt", "x"}, {"max_tokens", 1}}).first, 200);
}

TEST_F(Http, WithoutTheKeyNothingIsServed) {
  start({.port = 0, .key = "secret"});
  EXPECT_EQ(post({{"prompt", "x"}}).first, 401);
  EXPECT_EQ(client().Get("/v1/models")->status, 401);
  EXPECT_EQ(client().Get("/health")->status, 200);
  httplib::Client with = client();
  with.set_bearer_token_auth("secret");
  EXPECT_EQ(with.Get("/v1/models")->status, 200);
  with.set_bearer_token_auth("secretsecret");
  EXPECT_EQ(with.Get("/v1/models")->status, 401);
}

/// As many connections as come at once are taken, and a port has one server.
TEST_F(Http, HundredsMayComeAtOnce) {
  constexpr int kClients = 200;
  start({.port = 0}, kClients);
  std::vector<std::future<std::pair<int, json>>> answers;
  for (int i = 0; i < kClients; ++i) {
    answers.push_back(std::async(std::launch::async, [&] {
      return post({{"prompt", "x"}, {"max_tokens", 1}});
    }));
  }
  EXPECT_EQ(std::ranges::count_if(answers, [](auto& answer) { return answer.get().first == 200; }), kClients);
  EXPECT_THROW(HttpServer(*service_, *model_, {.port = server_->port()}), core::InputError);
}

/// Nobody is served yet, so that all wait: the next ones are sent away.
TEST_F(Http, TooManyWaitingAreSentAway) {
  service_ = std::make_unique<TextService>(*decoder_, model_->tokenizer, 2, std::chrono::minutes(1));
  server_ = std::make_unique<HttpServer>(*service_, *model_, HttpOptions{.port = 0});
  std::vector<std::future<std::pair<int, json>>> answers;
  for (int i = 0; i < 2; ++i)
    answers.push_back(std::async(std::launch::async, [&] {
      return post({{"prompt", "x"}, {"max_tokens", 2}});
    }));
  while (service_->metrics().waiting < 2) std::this_thread::yield();
  const auto refused = client().Post("/v1/completions", R"({"prompt": "x"})", "application/json");
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
  EXPECT_EQ(service_->metrics().refused, 1U);
  batches_ = std::thread([this] { run_batches(*service_, Schedule::fcfs); });
  for (auto& answer : answers) EXPECT_EQ(answer.get().first, 200);
}

/// A client that leaves after the first event: its slot is free soon after.
TEST_F(Http, WhoLeavesFreesTheSlot) {
  start();
  const json body = {{"prompt", "x"}, {"max_tokens", 47}, {"stream", true}, {"ignore_eos", true}};
  for (int i = 0; i < 20; ++i) {
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = body.dump();
    request.set_header("Content-Type", "application/json");
    request.content_receiver = [](const char*, std::size_t, std::uint64_t, std::uint64_t) { return false; };
    httplib::Client leaving = client();
    EXPECT_FALSE(leaving.send(request));
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (service_->metrics().running + service_->metrics().waiting > 0 &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(service_->metrics().running, 0);
  EXPECT_EQ(service_->metrics().waiting, 0);
  EXPECT_EQ(post({{"prompt", "x"}, {"max_tokens", 2}}).first, 200);
}

TEST_F(Http, MetricsCountWhatWasServed) {
  start();
  EXPECT_EQ(post({{"prompt", "abc"}, {"max_tokens", 5}, {"ignore_eos", true}}).first, 200);
  const std::string text = client().Get("/metrics")->body;
  for (const char* line : {"rooflm:prompt_tokens_total 3\n", "rooflm:generation_tokens_total 5\n",
                           "rooflm:request_success_total{finished_reason=\"length\"} 1\n",
                           "rooflm:time_to_first_token_seconds_count 1\n",
                           "rooflm:inter_token_latency_seconds_count 4\n", "rooflm:num_requests_running 0\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST_F(Http, WhileItStopsNewRequestsAreRefused) {
  start();
  service_->stop();
  EXPECT_EQ(post({{"prompt", "x"}}).first, 503);
  EXPECT_EQ(client().Get("/health")->status, 503);
}

}  // namespace
}  // namespace rooflm::serve
