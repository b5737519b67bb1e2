// What makes an SQLite file a run record: schema, version and application id.
#pragma once

#include <cstdint>
#include <string_view>

namespace rooflm::record {

/// PRAGMA user_version of records written by this rooflm. A change of schema.sql that readers notice
/// increments it and adds a row to `migrations()`.
inline constexpr int kSchemaVersion = 4;

/// PRAGMA application_id, "rflm" in ASCII: distinguishes run records from other SQLite files.
inline constexpr std::int32_t kApplicationId = 0x72666C6D;

/// The statements of schema.sql.
std::string_view schema_sql();

/// The git revision of this binary's sources, as git describes it; "unknown" without git.
std::string_view revision();

}  // namespace rooflm::record
