// Running a program with the injection library: its environment and its streams.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace rooflm::cli {

/// What `rooflm record` was asked for; texts as they are given to the library.
struct RecordWishes {
  std::string capture, calls = "all", pytorch = "on";
  std::uint64_t skip = 0, steps = 0, duration_ms = 0, most_bytes = 0;  ///< 0: no limit
  std::string stacks{};           ///< samples of stacks in a second and of what: "100,native"; "": none
  std::uint64_t trace_every = 0;  ///< steps of PyTorch whose activities are kept; 0: as what it costs allows
  std::uint64_t mark_every = 16;  ///< steps of PyTorch whose modules are marked
  std::vector<std::string> keep{};  ///< variables of the environment that name the record
};

/// A folder beside the record, into which the processes of a program write their streams.
class Recording {
 public:
  /// Makes the folder and what Python needs. Throws core::InputError, core::Unavailable without the library.
  Recording(const std::filesystem::path& record, const RecordWishes& wishes);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  /// Removes the folder unless it is kept.
  ~Recording();

  /// Variables that have the driver, NVTX and Python load the library.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& environment() const {
    return environment_;
  }
  /// Streams of all processes, the oldest first. Those that still write are waited for, `patience` long;
  /// `still_writing` counts what did not end.
  [[nodiscard]] std::vector<std::filesystem::path> streams(std::chrono::milliseconds patience,
                                                           std::size_t& still_writing) const;
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  /// The folder stays: what it holds could not be made a record.
  void keep() { is_kept_ = true; }

 private:
  /// The folder alone: what fails after it was made removes it.
  explicit Recording(const std::filesystem::path& record);

  std::filesystem::path folder_;
  std::vector<std::pair<std::string, std::string>> environment_;
  bool is_kept_ = false;
};

/// Whether `command` (looked for on PATH) is an executable that loads no libraries.
bool is_static_program(const std::string& command);

}  // namespace rooflm::cli
