// Speculative decoding: n-grams of the text itself, or a smaller model.
#include "serve/guesser.h"

#include <algorithm>

namespace rooflm::serve {
namespace {

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

void NgramGuesser::guess(std::span<Guessed> texts) {
  for (Guessed& text : texts) {
    const auto next = tokens_after(text.tokens, text.most);
    text.guesses.assign(next.begin(), next.end());
  }
}

void DraftGuesser::catch_up(const Guessed& text) {
  std::vector<std::int32_t>& read = read_.at(text.slot);
  if (read.empty()) {
    draft_->add(text.slot, text.tokens, draft_->positions());
  } else {
    // Its own guesses, as far as they were right, are read; the newest token never is.
    const auto differ = std::ranges::mismatch(read, text.tokens.first(text.tokens.size() - 1)).in1;
    const auto kept = std::min<std::int64_t>(differ - read.begin(), draft_->length(text.slot));
    draft_->rewind(text.slot, static_cast<std::int32_t>(kept),
                   text.tokens.subspan(static_cast<std::size_t>(kept)));
  }
  read.assign(text.tokens.begin(), text.tokens.end());
}

void DraftGuesser::guess(std::span<Guessed> texts) {
  std::vector<Guessed*> pending;
  for (Guessed& text : texts) {
    // What the draft guesses has to have room there, too.
    text.most = std::min(text.most, draft_->positions() - std::ssize(text.tokens));
    if (text.most < 1) continue;
    catch_up(text);
    pending.push_back(&text);
  }
  while (!pending.empty()) {
    draft_->step();
    std::erase_if(pending, [&](Guessed* text) {
      const std::size_t computed = draft_->computed(text->slot);
      if (computed == 0) return false;  // long texts are read in several steps
      const std::int32_t token =
          text->choose(draft_->next_logits(text->slot, computed - 1), std::ssize(text->guesses));
      text->guesses.push_back(token);
      if (std::ssize(text->guesses) == text->most) return true;
      draft_->choose_next(text->slot, computed - 1, token);
      read_[text->slot].push_back(token);
      return false;
    });
  }
}

void DraftGuesser::leave(std::size_t slot) {
  draft_->leave(slot);
  read_.at(slot).clear();
}

}  // namespace rooflm::serve
