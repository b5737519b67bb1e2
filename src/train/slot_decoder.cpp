// Texts that join and leave a batch between tokens.
#include "train/slot_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "compile/recipe.h"
#include "core/error.h"

namespace rooflm::train {
namespace {

constexpr std::int64_t kLeastSeq = 16;

double transient_bytes(const engines::Engine& engine, compile::EngineKind kind) {
  return static_cast<double>(engines::memory_need(engine.program(), kind).transient_bytes);
}

}  // namespace

SlotDecoder::SlotDecoder(Session& session, const model::CacheSize& size, std::int64_t longest_prompt,
                         Choice choice)
    : size_(size),
      longest_prompt_(longest_prompt),
      choice_(choice),
      vocab_(static_cast<std::size_t>(session.config().vocab)),
      padded_vocab_(static_cast<std::size_t>(session.config().padded_vocab)),
      caches_(session.store().backend()),
      tokens_(static_cast<std::size_t>(size.batch), kNoToken),
      lengths_(static_cast<std::size_t>(size.batch), 0) {
  if (longest_prompt < 1 || longest_prompt > size.positions)
    throw core::UsageError(
        fmt::format("prompts of {} tokens in slots of {} positions", longest_prompt, size.positions));
  if (choice == Choice::caller) logits_.resize(static_cast<std::size_t>(size.batch) * padded_vocab_);
  const compile::StepOptions& step = session.step_options();
  decode_ =
      session.make_engine(step_of(model::decode(session.config(), size, size.positions), session), &caches_);
  double taken_bytes = transient_bytes(*decode_, step.engine);
  for (std::int64_t seq = std::min(kLeastSeq, size.positions);; seq = std::min(2 * seq, size.positions)) {
    auto program = step_of(model::prefill_slots(session.config(), size, 1, seq), session);
    prefills_.push_back({seq, session.make_engine(std::move(program), &caches_, taken_bytes)});
    taken_bytes += transient_bytes(*prefills_.back().engine, step.engine);
    if (seq >= longest_prompt) break;
  }
}

program::Program SlotDecoder::step_of(program::Program program, const Session& session) const {
  if (choice_ == Choice::device) program = model::with_choice(std::move(program), session.config());
  return compile::inference_step(std::move(program), session.step_options());
}

void SlotDecoder::warm_up() {
  constexpr int kRuns = 3;  // op by op, recorded, replayed
  for (const Prefill& prefill : prefills_) {
    const std::vector<std::int32_t> text(static_cast<std::size_t>(std::min(prefill.seq, longest_prompt_)), 0);
    for (int i = 0; i < kRuns; ++i) {
      static_cast<void>(join(0, text));
      leave(0);
    }
  }
  for (int i = 0; i < kRuns; ++i) static_cast<void>(decode());
}

std::int32_t SlotDecoder::join(std::size_t slot, std::span<const std::int32_t> text) {
  if (tokens_.at(slot) != kNoToken) throw std::logic_error(fmt::format("slot {} is taken", slot));
  const std::int64_t length = checked_length(text);
  const auto fits = std::ranges::find_if(prefills_, [&](const Prefill& p) { return p.seq >= length; });
  engines::Engine& engine = *fits->engine;
  std::vector<std::int32_t> padded(static_cast<std::size_t>(fits->seq), 0);
  std::ranges::copy(text, padded.begin());
  const auto place = static_cast<std::int32_t>(slot);
  const auto read = static_cast<std::int32_t>(length);
  engine.io().write<std::int32_t>("tokens", padded);
  engine.io().write<std::int32_t>("lengths", {&read, 1});
  engine.io().write<std::int32_t>("slots", {&place, 1});
  engine.run();
  lengths_[slot] = read;
  if (choice_ == Choice::device) return tokens_[slot] = engine.io().read<std::int32_t>("next").at(0);
  read_logits(engine, slot);
  return tokens_[slot] = 0;
}

const std::vector<std::int32_t>& SlotDecoder::decode() {
  std::vector<std::int32_t> read = tokens_;
  for (std::size_t i = 0; i < read.size(); ++i) {
    // A free slot is computed, too, at its first position, which the next text overwrites.
    if (read[i] == kNoToken) {
      read[i] = 0;
    } else if (lengths_[i] >= size_.positions) {
      throw std::logic_error(fmt::format("the text of slot {} fills {} positions", i, size_.positions));
    }
  }
  decode_->io().write<std::int32_t>("tokens", read);
  decode_->io().write<std::int32_t>("first", lengths_);
  decode_->run();
  std::vector<std::int32_t> next(tokens_.size(), 0);
  if (choice_ == Choice::device) {
    next = decode_->io().read<std::int32_t>("next");
  } else {
    read_logits(*decode_, 0);
  }
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i] == kNoToken) continue;
    tokens_[i] = next[i];
    ++lengths_[i];
  }
  return tokens_;
}

StepTokens SlotDecoder::step() {
  const auto taken = std::ranges::count_if(tokens_, [](std::int32_t token) { return token != kNoToken; });
  static_cast<void>(decode());
  return {.texts = taken};
}

void SlotDecoder::read_logits(engines::Engine& engine, std::size_t first_slot) {
  const std::vector<float> read = engine.io().read<float>("logits");  // [texts, 1, padded V]
  std::ranges::copy(read, logits_.begin() + static_cast<std::ptrdiff_t>(first_slot * padded_vocab_));
}

std::span<const float> SlotDecoder::next_logits(std::size_t slot, std::size_t /*i*/) const {
  if (choice_ == Choice::device || slot >= tokens_.size())
    throw std::logic_error(fmt::format("no logits of slot {}", slot));
  return std::span(logits_).subspan(slot * padded_vocab_, vocab_);
}

void SlotDecoder::leave(std::size_t slot) {
  tokens_.at(slot) = kNoToken;
  lengths_.at(slot) = 0;
}

}  // namespace rooflm::train
