// Texts of a model for callers on other threads: what `rooflm serve` does between HTTP and the decoder.
#include "serve/text_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>

#include "core/error.h"

namespace rooflm::serve {
namespace {

/// The tokens that follow the last earlier place where the last three, two or one stood, too; at most `most`.
std::span<const std::int32_t> tokens_after(std::span<const std::int32_t> all, std::int64_t most) {
  constexpr std::int64_t kLongest = 3;
  for (std::int64_t n = std::min(kLongest, std::ssize(all) - 1); n > 0 && most > 0; --n) {
    const auto end = all.last(static_cast<std::size_t>(n));
    const auto before_last = all.end() - 1;
    const auto earlier = std::find_end(all.begin(), before_last, end.begin(), end.end());
    if (earlier == before_last) continue;
    const std::int64_t next = earlier - all.begin() + n;
    return all.subspan(static_cast<std::size_t>(next),
                       static_cast<std::size_t>(std::min(most, std::ssize(all) - next)));
  }
  return {};
}

}  // namespace

std::optional<TextNews> Answer::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, most, [&] { return has_news_; })) return std::nullopt;
  has_news_ = false;
  return std::exchange(news_, {});
}

void Answer::tell(const std::string& text, std::optional<MadeToken> token, std::optional<Finish> finish,
                  std::string error) {
  {
    const std::scoped_lock lock(mutex_);
    news_.text += text;
    if (token) news_.tokens.push_back(std::move(*token));
    news_.finish = finish;
    news_.error = std::move(error);
    has_news_ = true;
  }
  changed_.notify_one();
}

TextService::TextService(train::BatchDecoder& decoder, text::Tokenizer tokenizer, std::size_t most_waiting,
                         std::chrono::milliseconds most_time, ServerLog* log)
    : decoder_(&decoder),
      tokenizer_(std::move(tokenizer)),
      most_waiting_(most_waiting),
      most_s_(std::chrono::duration<double>(most_time).count()),
      log_(log),
      running_(decoder.slots()) {}

std::shared_ptr<Answer> TextService::submit(TextRequest request) {
  static_cast<void>(decoder_->checked_length(request.prompt));
  auto answer = std::make_shared<Answer>();
  {
    const std::scoped_lock lock(mutex_);
    if (is_stopping_) throw Stopping("the server is stopping");
    if (waiting_.size() >= most_waiting_) {
      ++metrics_.refused;
      throw TooManyWaiting(fmt::format("{} requests wait already", waiting_.size()));
    }
    Text text{.request = std::move(request), .answer = answer, .arrival_s = now_s()};
    text.filter = StopFilter(text.request.stop);
    arrived_.push_back(next_);
    waiting_.emplace(next_++, std::move(text));
  }
  changed_.notify_all();
  return answer;
}

void TextService::stop() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
    for (auto& [number, text] : waiting_) {
      ++metrics_.finished[std::string(name_of(Finish::cancelled))];
      tell_log(text, Finish::cancelled);
      text.answer->tell("", std::nullopt, Finish::cancelled, "the server is stopping");
    }
    waiting_.clear();
  }
  changed_.notify_all();
}

ServerMetrics TextService::metrics() const {
  const std::scoped_lock lock(mutex_);
  ServerMetrics copy = metrics_;
  copy.waiting = static_cast<std::int64_t>(waiting_.size());
  return copy;
}

double TextService::now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void TextService::look_for_arrivals(RequestQueue& queue) {
  const std::scoped_lock lock(mutex_);
  for (const std::uint64_t number : arrived_) {
    const auto text = waiting_.find(number);
    if (text == waiting_.end()) continue;
    queue.arrive({.request = number,
                  .user = text->second.request.user,
                  .prompt_tokens = static_cast<std::int64_t>(text->second.request.prompt.size())});
  }
  arrived_.clear();
}

void TextService::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !arrived_.empty() || is_stopping_; });
}

bool TextService::is_over() {
  return is_stopping_ && std::ranges::none_of(running_, [](const auto& text) { return text.has_value(); });
}

bool TextService::has_room(std::uint64_t request) {
  const std::scoped_lock lock(mutex_);
  const auto text = waiting_.find(request);
  return text == waiting_.end() || decoder_->has_room(text->second.most_tokens());
}

bool TextService::has_news(std::size_t slot) {
  return running_[slot]->answer->is_cancelled() || decoder_->computed(slot) > 0;
}

bool TextService::join(std::size_t slot, std::uint64_t request) {
  Text text;
  {
    const std::scoped_lock lock(mutex_);
    auto node = waiting_.extract(request);
    if (node.empty()) return false;
    text = std::move(node.mapped());
    text.admitted_s = now_s();
    metrics_.queue.add(*text.admitted_s - text.arrival_s);
    metrics_.prompt_tokens += text.request.prompt.size();
    ++metrics_.running;
  }
  if (text.answer->is_cancelled()) {
    finish(text, Finish::cancelled, "", std::nullopt);
    return false;
  }
  try {
    decoder_->add(slot, text.request.prompt, text.most_tokens());
    if (decoder_->most_guesses() > 0) text.tokens = text.request.prompt;
  } catch (const std::exception& error) {
    finish(text, Finish::failed, "", std::nullopt, error.what());
    return false;
  }
  running_[slot] = std::move(text);
  return true;
}

/// Probabilities are those of the model, before temperature and what narrows the choice.
MadeToken TextService::choose(const Text& text, std::span<const float> logits) const {
  const TextRequest& request = text.request;
  const double number = train::sampling_number(request.sampling.seed, static_cast<std::uint64_t>(text.made));
  MadeToken token{.id = train::sample_token(logits, request.sampling, number)};
  if (!request.top_logprobs) return token;
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  const double log_sum = most + std::log(sum);
  token.logprob = logits[static_cast<std::size_t>(token.id)] - log_sum;
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto count = std::min<std::ptrdiff_t>(*request.top_logprobs, std::ssize(ids));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const std::int32_t id = ids[static_cast<std::size_t>(i)];
    token.top.emplace_back(id, logits[static_cast<std::size_t>(id)] - log_sum);
  }
  return token;
}

void TextService::guess(std::size_t slot) {
  Text& text = *running_[slot];
  const auto most = static_cast<std::int64_t>(decoder_->most_guesses());
  const auto next = tokens_after(text.tokens, std::min(most, text.request.sampling.tokens - text.made - 1));
  text.guessed.assign(next.begin(), next.end());
  if (!next.empty()) decoder_->guess(slot, next);
}

/// The first token is chosen, and one more for each guess that was right.
Service::Took TextService::took_tokens(std::size_t slot, double now_s) {
  const std::size_t computed = std::max<std::size_t>(decoder_->computed(slot), 1);  // 0: the client left
  Took took{.tokens = 0};
  running_[slot]->all_guessed += static_cast<std::int64_t>(computed - 1);
  for (std::size_t i = 0; i < computed && !took.is_done; ++i) {
    Text& text = *running_[slot];
    if (i > 0 && text.tokens.back() != text.guessed[i - 1]) break;
    if (i > 0) ++text.accepted;
    took.is_done = took_token(slot, i, now_s);
    ++took.tokens;
  }
  if (decoder_->most_guesses() == 0) return took;
  {
    const std::scoped_lock lock(mutex_);
    metrics_.guessed_tokens += computed - 1;
    metrics_.accepted_tokens += static_cast<std::uint64_t>(took.tokens - 1);
  }
  if (!took.is_done) guess(slot);
  return took;
}

/// The i-th token of those that the last step computed.
bool TextService::took_token(std::size_t slot, std::size_t i, double now_s) {
  Text& text = *running_[slot];
  const auto leave = [&] {
    decoder_->leave(slot);
    running_[slot].reset();
    return true;
  };
  if (text.answer->is_cancelled()) {
    finish(text, Finish::cancelled, "", std::nullopt);
    return leave();
  }
  MadeToken token;
  try {
    token = choose(text, decoder_->next_logits(slot, i));
  } catch (const std::exception& error) {
    finish(text, Finish::failed, "", std::nullopt, error.what());
    return leave();
  }
  decoder_->choose_next(slot, i, token.id);
  if (decoder_->most_guesses() > 0) text.tokens.push_back(token.id);
  {
    const std::scoped_lock lock(mutex_);
    ++metrics_.generation_tokens;
    if (text.made == 0) {
      metrics_.ttft.add(now_s - text.arrival_s);
    } else {
      metrics_.inter_token.add(now_s - text.last_s);
    }
  }
  if (text.made == 0) text.first_s = now_s;
  text.last_s = now_s;
  ++text.made;
  const train::SamplingOptions& sampling = text.request.sampling;
  const auto eot = tokenizer_.eot();
  const bool is_end = (sampling.stop_at_eot && eot && token.id == static_cast<std::int32_t>(*eot)) ||
                      std::ranges::find(text.request.stop_tokens, token.id) != text.request.stop_tokens.end();
  std::string piece;
  if (!is_end) {
    // Rows of a padded vocabulary may be beyond the tokenizer.
    const bool is_known = token.id < static_cast<std::int32_t>(tokenizer_.vocab_size());
    const std::string_view bytes =
        is_known ? tokenizer_.token_bytes(static_cast<std::uint32_t>(token.id)) : std::string_view();
    piece = text.filter.append(text.stream.append(bytes));
  }
  const bool is_full = decoder_->length(slot) >= decoder_->positions();
  const bool is_late = now_s - text.arrival_s > most_s_;
  if (is_end || text.filter.has_stopped() || text.made >= sampling.tokens || is_full || is_late) {
    piece += text.filter.append(text.stream.finish());
    const Finish how = is_end || text.filter.has_stopped() ? Finish::stop : Finish::length;
    piece += text.filter.finish();  // nothing after a stop word
    finish(text, how, piece, std::move(token));
    return leave();
  }
  text.answer->tell(piece, std::move(token), std::nullopt);
  return false;
}

void TextService::tell_log(const Text& text, Finish how) {
  if (log_ == nullptr) return;
  log_->ended({.user = text.request.user,
               .prompt_tokens = static_cast<std::int64_t>(text.request.prompt.size()),
               .new_tokens = text.made,
               .arrival_s = text.arrival_s,
               .end_s = now_s(),
               .guessed_tokens = text.all_guessed,
               .accepted_tokens = text.accepted,
               .admitted_s = text.admitted_s,
               .first_token_s = text.first_s,
               .finish = how});
}

void TextService::finish(Text& text, Finish how, const std::string& rest, std::optional<MadeToken> token,
                         const std::string& error) {
  {
    const std::scoped_lock lock(mutex_);
    --metrics_.running;
    ++metrics_.finished[std::string(name_of(how))];
    if (text.made > 0) metrics_.latency.add(text.last_s - text.arrival_s);
  }
  tell_log(text, how);
  text.answer->tell(rest, std::move(token), how, error);
}

}  // namespace rooflm::serve
