// Reading records of older schemas as if they were new.
#pragma once

#include <span>
#include <string_view>

#include "record/database.h"

namespace rooflm::record {

/// The statements that turn a record of version `from` into one of version `from + 1`.
struct Migration {
  int from = 0;
  std::string_view sql;
};

/// What this rooflm knows, by version.
std::span<const Migration> migrations();

/// A copy in memory of `record`, which is of version `from`, brought to version `to`. Throws core::InputError
/// when a step is missing ("nothing leads from schema 0 to 1") or the record lacks what a step takes for
/// granted.
std::unique_ptr<Database> migrated(const Database& record, int from, int to,
                                   std::span<const Migration> steps);

}  // namespace rooflm::record
