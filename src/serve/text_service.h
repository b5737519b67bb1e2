// Texts of a model for callers on other threads: what `rooflm serve` does between HTTP and the decoder.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "serve/batcher.h"
#include "serve/server_log.h"
#include "serve/server_metrics.h"
#include "serve/stop_filter.h"
#include "text/tokenizer.h"
#include "train/batch_decoder.h"
#include "train/generate.h"

namespace rooflm::serve {

/// What is asked for.
struct TextRequest {
  std::vector<std::int32_t> prompt{};  ///< at least one token
  train::SamplingOptions sampling{};   ///< `tokens` is the most that are made; `stop_at_eot` as usual
  std::vector<std::string> stop{};     ///< words that end the text and are left out of it
  std::vector<std::int32_t> stop_tokens{};
  std::optional<std::int64_t> top_logprobs{};  ///< log-probabilities of so many tokens beside the chosen one
  std::uint64_t user = 0;
};

/// A token that was made.
struct MadeToken {
  std::int32_t id = 0;
  double logprob = 0;  ///< natural logarithm of its probability at temperature 1
  std::vector<std::pair<std::int32_t, double>> top{};  ///< of the most likely ones, best first
};

/// What was made since the last look.
struct TextNews {
  std::string text{};  ///< whole UTF-8 characters
  std::vector<MadeToken> tokens{};
  std::optional<Finish> finish{};  ///< set once, with the last news
  std::string error{};             ///< where it failed
};

/// One text on its way. Thread-safe.
class Answer {
 public:
  /// Waits for news, at most so long; none where the time is over.
  std::optional<TextNews> wait(std::chrono::milliseconds most);
  /// Nobody wants it any more.
  void cancel() { is_cancelled_ = true; }
  [[nodiscard]] bool is_cancelled() const { return is_cancelled_; }

 private:
  friend class TextService;
  void tell(const std::string& text, std::optional<MadeToken> token, std::optional<Finish> finish,
            std::string error = {});

  std::mutex mutex_;
  std::condition_variable changed_;
  TextNews news_;  ///< not yet looked at
  bool has_news_ = false;
  std::atomic<bool> is_cancelled_ = false;
};

/// No room for one more that waits.
struct TooManyWaiting : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// It is being stopped.
struct Stopping : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Requests from any thread, served by the one that runs run_batches on it. A request that fails (its logits
/// are NaN, memory runs out) ends alone.
class TextService : public Service {
 public:
  /// `decoder` lets its caller choose tokens. With `guesses` a text's next tokens are guessed from its own
  /// (n-grams: Saxena, "Prompt Lookup Decoding", 2023), which changes how many are made in a step and not
  /// which. At most `most_waiting` requests wait for a slot.
  TextService(train::BatchDecoder& decoder, text::Tokenizer tokenizer, std::size_t most_waiting,
              std::chrono::milliseconds most_time, ServerLog* log = nullptr);

  /// Throws TooManyWaiting, Stopping; std::logic_error for a prompt that is empty or too long.
  std::shared_ptr<Answer> submit(TextRequest request);
  /// Takes no more requests; those that have a slot are finished, those that wait are given up.
  void stop();
  [[nodiscard]] bool is_stopping() const { return is_stopping_; }
  /// A copy.
  [[nodiscard]] ServerMetrics metrics() const;

  [[nodiscard]] std::size_t slots() const override { return decoder_->slots(); }
  [[nodiscard]] double now_s() override;
  void look_for_arrivals(RequestQueue& queue) override;
  void wait() override;
  [[nodiscard]] bool is_over() override;
  [[nodiscard]] bool has_room(std::uint64_t request) override;
  bool join(std::size_t slot, std::uint64_t request) override;
  train::StepTokens decode() override { return decoder_->step(); }
  [[nodiscard]] bool has_news(std::size_t slot) override;
  Took took_tokens(std::size_t slot, double now_s) override;
  void ran(const BatchStep& step) override {
    if (log_ != nullptr) log_->ran(step);
  }

 private:
  struct Text {
    TextRequest request{};
    std::shared_ptr<Answer> answer{};
    double arrival_s = 0, last_s = 0;
    std::optional<double> admitted_s{}, first_s{};
    std::int64_t made = 0;
    std::vector<std::int32_t> tokens{};   ///< prompt and made ones, where tokens are guessed
    std::vector<std::int32_t> guessed{};  ///< that the running step reads
    std::int64_t all_guessed = 0, accepted = 0;
    [[nodiscard]] std::int64_t most_tokens() const {
      return static_cast<std::int64_t>(request.prompt.size()) + request.sampling.tokens;
    }
    train::Utf8Stream stream{};
    StopFilter filter{{}};
  };
  [[nodiscard]] MadeToken choose(const Text& text, std::span<const float> logits) const;
  bool took_token(std::size_t slot, std::size_t i, double now_s);
  void guess(std::size_t slot);
  void tell_log(const Text& text, Finish how);
  void finish(Text& text, Finish how, const std::string& rest, std::optional<MadeToken> token,
              const std::string& error = {});

  train::BatchDecoder* decoder_;
  text::Tokenizer tokenizer_;
  std::size_t most_waiting_;
  double most_s_;
  ServerLog* log_;  ///< nullptr: nobody keeps it
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();

  mutable std::mutex mutex_;  ///< of what follows, up to the metrics
  std::condition_variable changed_;
  std::map<std::uint64_t, Text> waiting_;  ///< by number
  std::vector<std::uint64_t> arrived_;     ///< those of them that the queue does not know yet
  std::uint64_t next_ = 0;
  ServerMetrics metrics_;

  std::atomic<bool> is_stopping_ = false;
  std::vector<std::optional<Text>> running_;  ///< by slot; of the serving thread
};

}  // namespace rooflm::serve
