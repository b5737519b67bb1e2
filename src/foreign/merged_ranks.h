// Traces of several ranks in one file, as scripts merge them. Private to the room.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "foreign/foreign_run.h"

namespace rooflm::foreign {

/// Which rank each process of a host is of, and what a device of it is called in the record.
struct MergedRanks {
  std::map<std::int64_t, std::size_t> of_process{};
  std::map<std::pair<std::size_t, std::string>, std::string> devices{};  ///< rank and device in the file

  [[nodiscard]] bool is_one() const { return of_process.empty(); }
  [[nodiscard]] std::string device(std::int64_t process, const std::string& device) const;
};

/// Finds out whether calls of several processes stand in the file, and which device work each of them
/// started: by the names of processes, by the order of the file, or by which calls can have started it. Then
/// gives each rank correlations, lanes and devices of its own, and says so. `processes` are those of the
/// activities; `label_of` tells what is known of a process. Throws core::InputError, naming `where`, where
/// the ranks cannot be told apart.
MergedRanks separate_ranks(ForeignRun& run, const std::vector<std::int64_t>& processes,
                           const std::function<std::string(std::int64_t)>& label_of,
                           const std::string& where);

}  // namespace rooflm::foreign
