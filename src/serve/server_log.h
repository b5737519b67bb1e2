// What a server tells of its requests and of its batches.
#pragma once

#include <cstdint>
#include <optional>

#include "core/named.h"

namespace rooflm::serve {

using core::name_of;

/// Why a text ended.
enum class Finish : std::uint8_t { stop, length, cancelled, failed };
constexpr auto names_of(Finish) {
  return core::named<Finish>("finish reason", {{Finish::stop, "stop"},
                                               {Finish::length, "length"},
                                               {Finish::cancelled, "cancelled"},
                                               {Finish::failed, "error"}});
}

/// A request that ended; times are seconds on the service's clock.
struct EndedText {
  std::uint64_t user = 0;
  std::int64_t prompt_tokens = 0, new_tokens = 0;
  double arrival_s = 0, end_s = 0;
  std::int64_t guessed_tokens = 0, accepted_tokens = 0;  ///< of speculative decoding
  std::optional<double> admitted_s{}, first_token_s{};   ///< none: it ended before
  Finish finish = Finish::stop;
};

/// One run of an engine: a prompt that was read, or one more token of each text.
struct BatchStep {
  double begin_s = 0, end_s = 0;
  std::int64_t texts = 0;
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;  ///< of texts that were continued, without guesses
};

/// Who keeps it. Called from any thread.
class ServerLog {
 public:
  ServerLog() = default;
  ServerLog(const ServerLog&) = delete;
  ServerLog& operator=(const ServerLog&) = delete;
  virtual ~ServerLog() = default;
  virtual void ended(const EndedText& text) = 0;
  virtual void ran(const BatchStep& step) = 0;
};

}  // namespace rooflm::serve
