// The record of a server that runs.
#include "lab/server_record.h"

#include <string>
#include <utility>

namespace rooflm::lab {
namespace {

constexpr double kMostBatchS = 1;
constexpr double kNever = -1;

/// Users are hashes of names: the digits that a cell, a double, keeps.
constexpr std::uint64_t kUserMask = 0xffffffff;

}  // namespace

ServerRecord::ServerRecord(record::Writer& writer, LoadRow load) : writer_(&writer) {
  load.is_observed = true;
  cells_.add(load, {});
  flush();
}

void ServerRecord::ended(const serve::EndedText& text) {
  const std::scoped_lock lock(mutex_);
  cells_.add({.request = {.user = text.user & kUserMask,
                          .prompt_tokens = text.prompt_tokens,
                          .new_tokens = text.new_tokens,
                          .arrival_s = text.arrival_s},
              .admitted_s = text.admitted_s.value_or(kNever),
              .first_token_s = text.first_token_s.value_or(kNever),
              .finish_s = text.end_s,
              .guessed_tokens = text.guessed_tokens,
              .accepted_tokens = text.accepted_tokens,
              .finish = std::string(name_of(text.finish))});
}

void ServerRecord::ran(const serve::BatchStep& step) {
  const std::scoped_lock lock(mutex_);
  const bool is_same = step.texts == batch_.texts && step.prefill_tokens == 0 && batch_.prefill_tokens == 0 &&
                       step.end_s - batch_.begin_s <= kMostBatchS;
  if (!is_same) end_batch();
  if (steps_++ == 0) {
    batch_ = step;
    return;
  }
  batch_.end_s = step.end_s;
  batch_.decode_tokens += step.decode_tokens;
}

void ServerRecord::end_batch() {
  if (steps_ > 0) cells_.add(batch_, steps_);
  steps_ = 0;
}

void ServerRecord::flush() {
  const auto cells = [&] {
    const std::scoped_lock lock(mutex_);
    end_batch();
    return cells_.take();
  }();
  if (cells.empty()) return;
  writer_->add(cells);
  writer_->commit();
}

}  // namespace rooflm::lab
