// Texts that join and leave a batch between steps, with keys and values in blocks.
#include "train/paged_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "compile/recipe.h"
#include "core/error.h"

namespace rooflm::train {

/// Inputs of a run.
struct PagedDecoder::Rows {
  std::vector<std::int32_t> tokens{}, first{}, blocks{}, picked{};
};

PagedDecoder::PagedDecoder(Session& session, const PagedOptions& options)
    : options_(options),
      vocab_(static_cast<std::size_t>(session.config().vocab)),
      padded_vocab_(static_cast<std::size_t>(session.config().padded_vocab)),
      caches_(session.store().backend()),
      texts_(static_cast<std::size_t>(options.slots)) {
  if (options.longest_prompt < 1 || options.longest_prompt > options.positions)
    throw core::UsageError(fmt::format("prompts of {} tokens in texts of {} positions",
                                       options.longest_prompt, options.positions));
  const std::int64_t pool = options.pool > 0 ? options.pool : options.slots * options.positions;
  if (pool < options.positions)
    throw core::UsageError(
        fmt::format("keys and values of {} tokens: a text alone may have {}", pool, options.positions));
  // Every text may leave a part of its last block unused.
  const std::int64_t blocks = blocks_of(pool) + (options.pool > 0 ? 0 : options.slots);
  for (std::int64_t block = blocks; block > 0; --block) free_.push_back(static_cast<std::int32_t>(block));
  const std::int64_t results = options.slots * (1 + options.guesses);
  const std::int64_t most = std::max(options.chunk, std::int64_t{1}) + results;
  model::PagedSize size{.blocks = blocks + 1, .block = options.block, .positions = options.positions};
  table_ = static_cast<std::size_t>(size.table());
  const compile::StepOptions& step = session.step_options();
  double taken_bytes = 0;
  for (std::int64_t rows = 1;; rows = std::min(2 * rows, most)) {
    size.rows = rows;
    size.results = std::min(rows, results);
    auto program = compile::inference_step(model::paged_step(session.config(), size), step);
    engines_.push_back(session.make_engine(std::move(program), &caches_, taken_bytes));
    taken_bytes +=
        static_cast<double>(engines::memory_need(engines_.back()->program(), step.engine).transient_bytes);
    if (rows == most) break;
  }
}

std::int64_t PagedDecoder::blocks_of(std::int64_t tokens) const {
  return (tokens + options_.block - 1) / options_.block;
}

void PagedDecoder::warm_up() {
  for (const auto& engine : engines_) run(*engine, {});
}

std::int32_t PagedDecoder::length(std::size_t slot) const {
  return texts_.at(slot) ? texts_[slot]->length : 0;
}

bool PagedDecoder::has_room(std::int64_t tokens) const {
  return blocks_of(std::min(tokens, options_.positions)) <= std::ssize(free_);
}

void PagedDecoder::add(std::size_t slot, std::span<const std::int32_t> text, std::int64_t most) {
  if (texts_.at(slot)) throw std::logic_error(fmt::format("slot {} is taken", slot));
  most = std::min(std::max(most, checked_length(text)), options_.positions);
  if (!has_room(most)) throw std::logic_error(fmt::format("no blocks for {} tokens", most));
  Text& added = texts_[slot].emplace();
  added.unread.assign(text.begin(), text.end());
  added.number = next_++;
  const auto kept = free_.end() - blocks_of(most);
  added.blocks.assign(kept, free_.end());
  free_.erase(kept, free_.end());
}

/// The next `count` tokens of the text, and the last `results` of them with their logits.
void PagedDecoder::add_rows(Rows& rows, Text& text, std::size_t count, std::size_t results) const {
  text.start = text.length + static_cast<std::int32_t>(count - results);
  text.computed = results;
  text.first_row = rows.picked.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i + results >= count) rows.picked.push_back(static_cast<std::int32_t>(rows.tokens.size()));
    rows.tokens.push_back(text.unread[i]);
    rows.first.push_back(text.length + static_cast<std::int32_t>(i));
    rows.blocks.insert(rows.blocks.end(), text.blocks.begin(), text.blocks.end());
    rows.blocks.resize(rows.tokens.size() * table_, 0);
  }
}

StepTokens PagedDecoder::step() {
  Rows rows;
  StepTokens counts;
  std::vector<Text*> reading;
  for (auto& text : texts_) {
    if (!text) continue;
    text->computed = 0;
    if (text->is_reading) {
      reading.push_back(&*text);
      continue;
    }
    if (text->length + std::ssize(text->unread) > options_.positions)
      throw std::logic_error(fmt::format("a text fills {} positions", options_.positions));
    add_rows(rows, *text, text->unread.size(), text->unread.size());
    ++counts.texts;
  }
  std::ranges::sort(reading, {}, &Text::number);
  auto left = static_cast<std::size_t>(options_.chunk);
  for (Text* text : reading) {
    const std::size_t count = std::min(left, text->unread.size());
    if (count == 0) break;
    const bool is_last = count == text->unread.size();
    add_rows(rows, *text, count, is_last ? 1 : 0);
    left -= count;
    counts.prefill += static_cast<std::int64_t>(count);
    text->is_reading = !is_last;
    if (is_last) continue;
    text->length += static_cast<std::int32_t>(count);
    text->unread.erase(text->unread.begin(), text->unread.begin() + static_cast<std::ptrdiff_t>(count));
  }
  if (!rows.tokens.empty()) run(*engines_.at(std::bit_width(rows.tokens.size() - 1)), rows);
  for (auto& text : texts_) {
    if (!text || text->computed == 0) continue;
    text->length = text->start + 1;  // guesses count when they are chosen
    text->unread.clear();
  }
  return counts;
}

void PagedDecoder::run(engines::Engine& engine, const Rows& rows) {
  const auto write = [&](const char* name, std::vector<std::int32_t> values) {
    const program::Program& program = engine.program();
    values.resize(static_cast<std::size_t>(program.shape(program.find(name)).numel()), 0);
    engine.io().write<std::int32_t>(name, values);
  };
  write("tokens", rows.tokens);
  write("first", rows.first);
  write("blocks", rows.blocks);
  write("picked", rows.picked);
  engine.run();
  if (!rows.picked.empty()) logits_ = engine.io().read<float>("logits");
}

std::size_t PagedDecoder::computed(std::size_t slot) const {
  return texts_.at(slot) ? texts_[slot]->computed : 0;
}

std::span<const float> PagedDecoder::next_logits(std::size_t slot, std::size_t i) const {
  if (i >= computed(slot)) throw std::logic_error(fmt::format("no logits of slot {}", slot));
  return std::span(logits_).subspan((texts_[slot]->first_row + i) * padded_vocab_, vocab_);
}

void PagedDecoder::choose_next(std::size_t slot, std::size_t i, std::int32_t token) {
  if (i >= computed(slot)) throw std::logic_error(fmt::format("no logits of slot {}", slot));
  Text& text = *texts_[slot];
  text.length = text.start + 1 + static_cast<std::int32_t>(i);
  text.unread = {token};
}

void PagedDecoder::guess(std::size_t slot, std::span<const std::int32_t> tokens) {
  Text& text = texts_.at(slot).value();
  if (text.is_reading || text.unread.size() != 1) throw std::logic_error("guesses follow a chosen token");
  const std::int64_t room =
      std::min<std::int64_t>(std::ssize(text.blocks) * options_.block, options_.positions) - text.length - 1;
  const std::int64_t count = std::min({std::ssize(tokens), options_.guesses, room});
  if (count > 0) text.unread.insert(text.unread.end(), tokens.begin(), tokens.begin() + count);
}

void PagedDecoder::leave(std::size_t slot) {
  if (!texts_.at(slot)) return;
  free_.insert(free_.end(), texts_[slot]->blocks.begin(), texts_[slot]->blocks.end());
  texts_[slot].reset();
}

}  // namespace rooflm::train
