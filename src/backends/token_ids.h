// The error for token ids outside the vocabulary, shared by all devices.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "core/error.h"

namespace rooflm::backends {

/// Throws core::InputError for the first of the `count` ids that is >= `limit`, or negative unless
/// `negative_is_ignored`. `what`: "token" or "target".
inline void check_ids(const std::int32_t* ids, std::int64_t count, std::int64_t limit, const char* what,
                      bool negative_is_ignored = false) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (ids[i] >= limit || (ids[i] < 0 && !negative_is_ignored)) {
      throw core::InputError(
          fmt::format("{} {} of the batch is {}, the vocabulary has {} entries: was the text prepared with "
                      "this model's tokenizer?",
                      what, i, ids[i], limit));
    }
  }
}

}  // namespace rooflm::backends
