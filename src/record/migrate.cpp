// Reading records of older schemas as if they were new.
#include "record/migrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/error.h"

namespace rooflm::record {

std::span<const Migration> migrations() { return {}; }

std::unique_ptr<Database> migrated(const Database& record, int from, int to,
                                   std::span<const Migration> steps) {
  auto copy = std::make_unique<Database>(record);
  for (int version = from; version < to; ++version) {
    const auto step = std::ranges::find(steps, version, &Migration::from);
    if (step == steps.end()) {
      throw core::InputError(fmt::format("cannot read {}: nothing leads from schema {} to {}",
                                         record.path().string(), version, version + 1));
    }
    copy->execute(fmt::format("BEGIN; {}; PRAGMA user_version = {}; COMMIT;", step->sql, version + 1));
  }
  return copy;
}

}  // namespace rooflm::record
