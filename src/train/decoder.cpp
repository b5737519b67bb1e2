// Decoding of several texts with a KV cache.
#include "train/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <stdexcept>

#include "compile/recipe.h"

namespace rooflm::train {
namespace {

constexpr std::int64_t kLeastSeq = 16;

double transient_bytes(const engines::Engine* engine, compile::EngineKind kind) {
  if (engine == nullptr) return 0;
  return static_cast<double>(engines::memory_need(engine->program(), kind).transient_bytes);
}

}  // namespace

Decoder::Decoder(Session& session, const model::CacheSize& size)
    : session_(&session), size_(size), caches_(session.store().backend()) {
  lengths_.assign(static_cast<std::size_t>(size.batch), 0);
  const compile::StepOptions& step = session.step_options();
  decode_ = session.make_engine(
      compile::inference_step(model::decode(session.config(), size, size.positions), step), &caches_);
}

void Decoder::make_prefill(std::int64_t seq) {
  prefill_.reset();
  const compile::StepOptions& step = session_->step_options();
  prefill_ =
      session_->make_engine(compile::inference_step(model::prefill(session_->config(), size_, seq), step),
                            &caches_, transient_bytes(decode_.get(), step.engine));
  prefill_seq_ = seq;
}

Decoder::Logits Decoder::prefill(std::span<const std::span<const std::int32_t>> texts) {
  if (texts.size() != lengths_.size()) throw std::logic_error("a text for each row");
  std::size_t longest = 0;
  for (const auto text : texts) {
    const bool fits = !text.empty() && text.size() <= static_cast<std::size_t>(size_.positions);
    if (!fits)
      throw std::logic_error(fmt::format("{} tokens for {} positions", text.size(), size_.positions));
    longest = std::max(longest, text.size());
  }
  if (static_cast<std::int64_t>(longest) > prefill_seq_) {
    const auto seq = std::max(kLeastSeq, static_cast<std::int64_t>(std::bit_ceil(longest)));
    make_prefill(std::min(seq, size_.positions));
  }
  std::vector<std::int32_t> padded(lengths_.size() * static_cast<std::size_t>(prefill_seq_), 0);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::ranges::copy(texts[i], padded.begin() + static_cast<std::ptrdiff_t>(i) * prefill_seq_);
    lengths_[i] = static_cast<std::int32_t>(texts[i].size());
  }
  prefill_->io().write<std::int32_t>("tokens", padded);
  prefill_->io().write<std::int32_t>("lengths", lengths_);
  return run(*prefill_);
}

Decoder::Logits Decoder::decode(std::span<const std::int32_t> tokens) {
  if (tokens.size() != lengths_.size()) throw std::logic_error("a token for each row");
  const auto last = static_cast<std::int32_t>(size_.positions - 1);
  std::vector<std::int32_t> read(tokens.begin(), tokens.end());
  std::vector<std::int32_t> first = lengths_;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (read[i] == kNoToken) {  // its row is computed, too, where nobody looks
      read[i] = 0;
      first[i] = std::min(first[i], last);
    } else if (lengths_[i]++ > last) {
      throw std::logic_error(fmt::format("text {} is longer than {} positions", i, size_.positions));
    }
  }
  decode_->io().write<std::int32_t>("tokens", read);
  decode_->io().write<std::int32_t>("first", first);
  return run(*decode_);
}

Decoder::Logits Decoder::run(engines::Engine& engine) {
  times_ = engine.run();
  const std::vector<float> all = engine.io().read<float>("logits");  // [B, 1, V], padded
  const model::ModelConfig& config = session_->config();
  Logits logits;
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    const auto row = std::span(all).subspan(i * static_cast<std::size_t>(config.padded_vocab),
                                            static_cast<std::size_t>(config.vocab));
    logits.emplace_back(row.begin(), row.end());
  }
  return logits;
}

}  // namespace rooflm::train
