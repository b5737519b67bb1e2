// Ceilings as rows of a record, and the file that keeps them from one command to the next.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "measure/peaks.h"
#include "record/rows.h"

namespace rooflm::measure {

/// The row of a record; `device` is "cpu" and `measured_utc` now ("2026-01-31T12:00:00Z").
record::Ceiling ceiling_row(const Peak& peak);

/// Whose ceilings a file keeps: what would change them.
struct CeilingKey {
  std::string processor;  ///< model
  int threads = 0;        ///< that a process may use here
  std::string version;    ///< of rooflm
  std::string measuring;  ///< a digest of the code that measures: other kernels and rules give other rates
};

/// The file under $XDG_CACHE_HOME/rooflm or $HOME/.cache/rooflm; "" where neither is an absolute path.
std::filesystem::path ceiling_file(const CeilingKey& key);

/// What a file keeps, or why it is of no use.
struct KeptCeilings {
  std::vector<record::Ceiling> rows;
  std::string fault;  ///< one line: the file, what is wrong; "" when it is fine or does not exist
};

/// Never throws for what is in the file or how it may be read: whoever asks measures again.
KeptCeilings read_ceilings(const std::filesystem::path& file, const CeilingKey& key);

/// Replaces the file atomically, making its folder first. Throws core::InputError when that cannot be.
void write_ceilings(const std::filesystem::path& file, const CeilingKey& key,
                    const std::vector<record::Ceiling>& rows);

}  // namespace rooflm::measure
