// Text from a model, token by token.
#include "train/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "core/stop_signals.h"
#include "program/groups.h"
#include "ranks/transport.h"
#include "train/decoder.h"
#include "train/stop_filter.h"

namespace rooflm::train {
namespace {

constexpr std::uint64_t kSamplingStream = 0x73616d706c65;  // "sample"
constexpr std::int64_t kWindowWithoutPositions = 1024;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Bytes of the character that begins with `lead`; 0 when none does.
std::size_t character_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

/// Whether `next` may be the second byte after `lead` (no overlong forms, surrogates, or beyond U+10FFFF).
bool may_follow(unsigned char lead, unsigned char next) {
  if (lead == 0xE0) return next >= 0xA0 && next < 0xC0;
  if (lead == 0xED) return next >= 0x80 && next < 0xA0;
  if (lead == 0xF0) return next >= 0x90 && next < 0xC0;
  if (lead == 0xF4) return next >= 0x80 && next < 0x90;
  return next >= 0x80 && next < 0xC0;
}

/// Length of the longest start of `text` that could begin a character; `complete` says whether it is one.
std::size_t scan_character(std::string_view text, bool& complete) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = character_length(lead);
  std::size_t n = 1;
  while (n < length && n < text.size()) {
    const auto next = static_cast<unsigned char>(text[n]);
    if (n == 1 ? !may_follow(lead, next) : (next < 0x80 || next >= 0xC0)) break;
    ++n;
  }
  complete = length > 0 && n == length;
  return n;
}

std::vector<std::int32_t> encode_prompt(const Session& session, const text::Tokenizer& tokenizer,
                                        const std::string& prompt) {
  std::vector<std::int32_t> tokens;
  for (const std::uint32_t id : tokenizer.encode_prompt(prompt))
    tokens.push_back(static_cast<std::int32_t>(id));
  if (tokens.empty()) {
    const auto eot = tokenizer.eot();
    if (!eot) throw core::UsageError("--prompt is empty and the tokenizer has no end-of-text token");
    tokens.push_back(static_cast<std::int32_t>(*eot));
  }
  const auto largest = *std::ranges::max_element(tokens);
  if (largest >= session.config().vocab) {
    throw core::InputError(fmt::format("token id {} of the prompt is outside the model's vocabulary of {}",
                                       largest, session.config().vocab));
  }
  return tokens;
}

std::int64_t window_of(const Session& session, const SamplingOptions& options) {
  const std::int64_t positions = session.config().max_seq;
  const std::int64_t most = positions > 0 ? positions : kWindowWithoutPositions;
  if (options.window == 0) return most;
  return positions > 0 ? std::min(options.window, positions) : options.window;
}

}  // namespace

double sampling_number(std::uint64_t seed, std::uint64_t index) {
  const auto words = core::philox(seed, kSamplingStream, index);
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32U) | words[1];
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

void validate(const SamplingOptions& o) {
  using core::UsageError;
  if (o.tokens < 1) throw UsageError(fmt::format("--tokens must be at least 1, got {}", o.tokens));
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature)) {
    throw UsageError(fmt::format("--temperature must not be negative, got {}", o.temperature));
  }
  if (o.top_k < 0) throw UsageError(fmt::format("--top-k must not be negative, got {}", o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1)) {
    throw UsageError(fmt::format("--top-p must be above 0 and at most 1, got {}", o.top_p));
  }
  if (!(o.min_p >= 0 && o.min_p <= 1)) {
    throw UsageError(fmt::format("--min-p must be from 0 to 1, got {}", o.min_p));
  }
  if (o.window < 0) throw UsageError(fmt::format("--window must not be negative, got {}", o.window));
}

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  if (std::ranges::any_of(logits, [](float x) { return std::isnan(x); })) {
    throw core::CheckFailed("the model's logits are NaN: its weights are damaged");
  }
  const auto most_likely = std::ranges::max_element(logits);
  if (options.temperature == 0) return static_cast<std::int32_t>(most_likely - logits.begin());
  const auto share_of = [&](std::int32_t id) {
    return std::exp((logits[static_cast<std::size_t>(id)] - *most_likely) / options.temperature);
  };
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  if (options.min_p > 0) std::erase_if(ids, [&](std::int32_t id) { return share_of(id) < options.min_p; });
  if (options.top_k > 0 && options.top_k < std::ssize(ids)) {
    std::nth_element(ids.begin(), ids.begin() + options.top_k - 1, ids.end(), before);
    ids.resize(static_cast<std::size_t>(options.top_k));
  }
  double sum = 0;
  for (const std::int32_t id : ids) sum += share_of(id);
  // The most likely tokens hold most of the sum: only as many are sorted as are needed, twice as many each
  // time. First top_p of the sum is cut off, then the number chooses within that.
  const bool is_cut = options.top_p < 1;
  double wanted = (is_cut ? options.top_p : uniform) * sum;
  std::vector<double> cumulative;
  double reached = 0;
  std::ptrdiff_t sorted = 0;
  for (std::ptrdiff_t i = 0; i < std::ssize(ids); ++i) {
    constexpr std::ptrdiff_t kFirst = 64;
    if (i == sorted) {
      sorted = std::min(std::max(2 * sorted, kFirst), std::ssize(ids));
      std::partial_sort(ids.begin() + i, ids.begin() + sorted, ids.end(), before);
    }
    reached += share_of(ids[static_cast<std::size_t>(i)]);
    cumulative.push_back(reached);
    if (is_cut ? reached >= wanted : reached > wanted) break;
  }
  if (is_cut) wanted = uniform * reached;
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end() - 1, wanted);
  return ids[static_cast<std::size_t>(chosen - cumulative.begin())];
}

MadeToken with_logprobs(std::span<const float> logits, std::int32_t id, std::int64_t most) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double log_sum = largest + std::log(sum);
  const auto logprob_of = [&](std::int32_t token) {
    return logits[static_cast<std::size_t>(token)] - log_sum;
  };
  MadeToken made{.id = id, .logprob = logprob_of(id)};
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto count = std::min<std::ptrdiff_t>(most, std::ssize(ids));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const std::int32_t token = ids[static_cast<std::size_t>(i)];
    made.top.emplace_back(token, logprob_of(token));
  }
  return made;
}

std::string Utf8Stream::append(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    bool complete = false;
    const std::size_t n = scan_character(rest, complete);
    if (!complete && n == rest.size() && character_length(static_cast<unsigned char>(rest[0])) > 0) break;
    text += complete ? rest.substr(0, n) : kReplacement;
    rest.remove_prefix(n);
  }
  pending_ = std::string(rest);
  return text;
}

std::string Utf8Stream::finish() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return unfinished ? std::string(kReplacement) : std::string();
}

namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// One text on its way.
struct Text {
  std::vector<std::int32_t> tokens;
  Utf8Stream stream;
  StopFilter filter;
  std::vector<MadeToken> made{};  ///< with log-probabilities
  std::int64_t produced = 0;
  bool is_done = false;
};

/// Positions for the longest of the texts with what is added to it, in steps of 16, within the window.
model::CacheSize size_for(const std::vector<Text>& texts, const SamplingOptions& options,
                          std::int64_t window) {
  constexpr std::int64_t kStep = 16;
  std::size_t longest = 0;
  for (const Text& text : texts) longest = std::max(longest, text.tokens.size());
  const std::int64_t most =
      options.tokens > window ? window : static_cast<std::int64_t>(longest) + options.tokens;
  return {.batch = static_cast<std::int64_t>(texts.size()),
          .positions = std::min(window, (most + kStep - 1) / kStep * kStep)};
}

/// Texts of one call of `generate`.
class Generator {
 public:
  Generator(Session& session, const text::Tokenizer& tokenizer, std::span<const std::string> prompts,
            const SamplingOptions& options, std::int64_t window)
      : session_(&session), options_(&options), tokenizer_(&tokenizer), eot_(tokenizer.eot()) {
    for (const std::string& prompt : prompts)
      texts_.push_back({.tokens = encode_prompt(session, tokenizer, prompt),
                        .stream = {},
                        .filter = StopFilter(options.stop)});
    decoder_.emplace(session, size_for(texts_, options, window));
    for (int i = 0; i < options.warmup; ++i) {
      static_cast<void>(prefill());
      if (options.cache && !is_full()) static_cast<void>(decoder_->decode(last_tokens()));
    }
  }

  [[nodiscard]] bool is_done() const { return std::ranges::all_of(texts_, &Text::is_done); }
  /// The signal that asked to stop when the newest tokens were chosen, or 0.
  [[nodiscard]] int signal() const { return signal_; }
  [[nodiscard]] const std::vector<Text>& texts() const { return texts_; }
  [[nodiscard]] const Decoder& decoder() const { return *decoder_; }

  /// A token for every text that is not done.
  GenerationStep step(bool is_first, const std::function<void(std::size_t, const std::string&)>& write) {
    GenerationStep step{.is_prefill = is_first || !options_->cache || is_full(), .engine = {}};
    const double begin = now_s();
    auto logits = step.is_prefill ? prefill() : decoder_->decode(last_tokens());
    step.engine = decoder_->times();
    const std::vector<std::int32_t> tokens = choose(logits);
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i].is_done) continue;
      ++step.texts;
      step.read += decoder_->lengths()[i];
      const std::string text = add(i, tokens[i]);
      if (!text.empty() || !texts_[i].is_done) write(i, text);
    }
    step.seconds = now_s() - begin;
    return step;
  }

 private:
  /// Whether a text has no room for one more token.
  [[nodiscard]] bool is_full() const {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (!texts_[i].is_done && decoder_->lengths()[i] >= decoder_->size().positions) return true;
    }
    return false;
  }

  Decoder::Logits prefill() {
    std::vector<std::span<const std::int32_t>> seen;
    for (const Text& text : texts_) {
      const auto most = static_cast<std::size_t>(decoder_->size().positions);
      seen.push_back(std::span(text.tokens).last(std::min(text.tokens.size(), most)));
    }
    return decoder_->prefill(seen);
  }

  [[nodiscard]] std::vector<std::int32_t> last_tokens() const {
    std::vector<std::int32_t> tokens;
    for (const Text& text : texts_) tokens.push_back(text.is_done ? Decoder::kNoToken : text.tokens.back());
    return tokens;
  }

  /// The next token of each text that is not done, and whether to stop after it: as the first of the ranks
  /// which share layers has it.
  std::vector<std::int32_t> choose(Decoder::Logits& logits) {
    std::vector<std::int32_t> tokens(texts_.size(), Decoder::kNoToken);
    tokens.push_back(core::StopSignals::received());
    ranks::Transport* const transport = session_->transport();
    std::vector<int> members{0};
    if (transport != nullptr)
      members = session_->step_options().sharding.mesh().members(transport->rank(), program::Group::tensor);
    const bool is_first = transport == nullptr || transport->rank() == members.front();
    for (std::size_t i = 0; i < texts_.size() && is_first; ++i) {
      if (!texts_[i].is_done) tokens[i] = sample(i, logits[i]);
    }
    if (members.size() > 1) share(*transport, members, tokens);
    signal_ = tokens.back();
    tokens.pop_back();
    return tokens;
  }

  /// From the first of the members to the others.
  static void share(ranks::Transport& transport, const std::vector<int>& members,
                    std::vector<std::int32_t>& tokens) {
    const bool is_first = transport.rank() == members.front();
    const auto bytes = std::as_writable_bytes(std::span(tokens));
    std::vector<ranks::Outgoing> out;
    std::vector<ranks::Incoming> in;
    if (!is_first) in.push_back({members.front(), bytes});
    for (std::size_t i = 1; i < members.size() && is_first; ++i) out.push_back({members[i], bytes});
    transport.exchange(ranks::kTokens, out, in);
  }

  [[nodiscard]] std::int32_t sample(std::size_t index, std::vector<float>& logits) {
    // The model may have more outputs than the tokenizer has tokens.
    logits.resize(std::min<std::size_t>(logits.size(), tokenizer_->vocab_size()));
    const std::uint64_t text = options_->first_text + index;
    const std::uint64_t place = static_cast<std::uint64_t>(texts_[index].produced) | text << 32U;
    const std::int32_t token = sample_token(logits, *options_, sampling_number(options_->seed, place));
    if (options_->top_logprobs)
      texts_[index].made.push_back(with_logprobs(logits, token, *options_->top_logprobs));
    return token;
  }

  /// The text that a new token completes; "" for the one that ends the text.
  std::string add(std::size_t index, std::int32_t token) {
    Text& text = texts_[index];
    ++text.produced;
    const bool is_end = options_->stop_at_eot && eot_ && static_cast<std::int64_t>(*eot_) == token;
    std::string more;
    if (!is_end) {
      text.tokens.push_back(token);
      more =
          text.filter.append(text.stream.append(tokenizer_->token_bytes(static_cast<std::uint32_t>(token))));
    }
    text.is_done = is_end || text.filter.has_stopped() || text.produced == options_->tokens;
    // Nothing comes after a stop word; without one, what was held back belongs to the text.
    return text.is_done ? more + text.filter.append(text.stream.finish()) + text.filter.finish() : more;
  }

  Session* session_;
  const SamplingOptions* options_;
  const text::Tokenizer* tokenizer_;
  std::optional<std::uint32_t> eot_;
  std::vector<Text> texts_;
  int signal_ = 0;
  std::optional<Decoder> decoder_;
};

}  // namespace

Generation generate(Session& session, const text::Tokenizer& tokenizer, std::span<const std::string> prompts,
                    const SamplingOptions& options,
                    const std::function<void(std::size_t text, const std::string&)>& write) {
  validate(options);
  // Ranks may take unequal times to make their engines.
  const ranks::Patience patience(session.transport());
  const double begin = now_s();
  Generator generator(session, tokenizer, prompts, options, window_of(session, options));
  Generation result;
  result.setup_s = now_s() - begin;
  result.size = generator.decoder().size();
  for (const Text& text : generator.texts())
    result.prompt_tokens.push_back(static_cast<std::int64_t>(text.tokens.size()));
  while (!generator.is_done() && generator.signal() == 0)
    result.steps.push_back(generator.step(result.steps.empty(), write));
  for (const Text& text : generator.texts()) {
    result.tokens.push_back(text.produced);
    if (options.top_logprobs) result.made.push_back(text.made);
  }
  if (!generator.is_done()) result.signal = generator.signal();
  result.prefill_seq = generator.decoder().prefill_seq();
  return result;
}

}  // namespace rooflm::train
