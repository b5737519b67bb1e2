// Reads records of older schemas.
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

/// All known migrations, by version.
std::span<const Migration> migrations();

/// An in-memory copy of `record`, migrated from version `from` to `to`. Throws core::InputError if a
/// migration is missing ("nothing leads from schema 0 to 1") or the record lacks what one requires.
std::unique_ptr<Database> migrated(const Database& record, int from, int to,
                                   std::span<const Migration> steps);

}  // namespace rooflm::record
