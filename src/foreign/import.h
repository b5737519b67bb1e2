// Traces and snapshots of other tools as run records. docs/export.md says what is taken from each.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "foreign/foreign_run.h"

namespace rooflm::foreign {

/// "nsys", "kineto", "torch-memory", "stream".
const std::vector<std::string>& import_kinds();

/// Which of them `path` is by its first bytes, or `kind` where that is not empty. Throws as import_file.
std::string kind_of_file(const std::filesystem::path& path, const std::string& kind);

/// Reads `path` as `kind`, found out from its first bytes where it is empty. Throws core::UsageError for an
/// unknown kind, core::InputError, naming the file and the place, for what cannot be read.
ForeignRun import_file(const std::filesystem::path& path, std::string kind);

// The readers.
/// JSON of Kineto, or a Chrome trace. `is_cut`: the text is known to end too early.
void read_kineto(std::string_view text, const std::string& where, bool is_cut, ForeignRun& run);
/// The database of nsys export.
void read_nsys(const std::filesystem::path& path, ForeignRun& run);
/// A pickle of torch.cuda.memory.
void read_torch_memory(std::string_view bytes, const std::string& where, ForeignRun& run);

}  // namespace rooflm::foreign
