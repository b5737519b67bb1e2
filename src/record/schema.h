// What makes a SQLite file a run record: its schema, its version and its mark.
#pragma once

#include <cstdint>
#include <string_view>

namespace rooflm::record {

/// PRAGMA user_version of the records that this rooflm writes. A change of schema.sql that a reader notices
/// adds one, and a row to `migrations()`.
inline constexpr int kSchemaVersion = 4;

/// PRAGMA application_id, "rflm" in ASCII: tells run records from other SQLite files.
inline constexpr std::int32_t kApplicationId = 0x72666C6D;

/// The statements of schema.sql.
std::string_view schema_sql();

/// The revision of the sources that this binary was built from, as git describes it; "unknown" without git.
std::string_view revision();

}  // namespace rooflm::record
