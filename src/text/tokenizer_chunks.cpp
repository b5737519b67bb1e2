// Threads take piece after piece; order is restored by index, so the result does not depend on them.
#include "text/tokenizer_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "text/bpe_model.h"

namespace rooflm::text {
namespace {

constexpr bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// The first safe cut at or after `from`, or text.size().
std::size_t find_cut(std::string_view text, std::size_t from) {
  for (std::size_t at = std::max<std::size_t>(from, 1); at < text.size(); ++at) {
    if ((text[at] == ' ' || text[at] == '\n') && is_letter_or_digit(text[at - 1])) return at;
  }
  return text.size();
}

}  // namespace

int thread_count(int threads) {
  constexpr int kMostThreads = 512;  // each has tables of some megabytes
  if (threads < 0 || threads > kMostThreads) {
    throw core::UsageError(
        fmt::format("--threads {}: expected 0 (one per core) to {}", threads, kMostThreads));
  }
  return threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ParallelEncoder::ParallelEncoder(const Tokenizer& tokenizer, int threads) {
  const int count = thread_count(threads);
  for (int i = 0; i < count; ++i) streams_.emplace_back(tokenizer);
  const auto& added = tokenizer.model_->added;
  may_cut_ = tokenizer.model_->rules.cuts_before_blanks() &&
             std::none_of(added.begin(), added.end(), [](const auto& token) { return token.always; });
}

std::vector<std::string_view> ParallelEncoder::cut(std::string_view text, std::size_t bytes) const {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t end = may_cut_ && bytes < text.size() ? find_cut(text, bytes) : text.size();
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return pieces;
}

void ParallelEncoder::encode(std::span<const std::string_view> pieces,
                             std::vector<std::vector<std::uint32_t>>& ids) {
  ids.resize(pieces.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&](TokenStream& stream) {
    try {
      for (std::size_t i = next++; i < pieces.size(); i = next++) {
        ids[i].clear();
        stream.encode(pieces[i], ids[i]);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      next = pieces.size();
    }
  };
  {
    std::vector<std::jthread> threads;
    const std::size_t helpers = std::min(streams_.size(), pieces.size());
    for (std::size_t i = 1; i < helpers; ++i) threads.emplace_back(work, std::ref(streams_[i]));
    work(streams_.front());
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace rooflm::text
