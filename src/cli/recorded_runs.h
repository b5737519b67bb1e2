// Turns the streams of a program's processes into records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/system/child_process.h"
#include "foreign/steps_by.h"
#include "record/rows.h"

namespace rooflm::cli {

/// The name of a record, in which "%p" is the number of a process and "%q{NAME}" one of its variables.
class RecordName {
 public:
  /// Throws core::UsageError for other uses of %.
  explicit RecordName(std::string pattern);
  [[nodiscard]] bool has_places() const { return !parts_.empty(); }
  [[nodiscard]] const std::string& pattern() const { return pattern_; }
  [[nodiscard]] std::vector<std::string> variables() const;
  /// `value_of(NAME)`; a variable that is not set is "unset".
  template <class ValueOf>
  [[nodiscard]] std::string of(std::int64_t process, const ValueOf& value_of) const {
    std::string name = pattern_.substr(0, parts_.empty() ? std::string::npos : parts_.front().begin);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      name += part.variable.empty() ? std::to_string(process) : value_of(part.variable);
      const std::size_t next = i + 1 < parts_.size() ? parts_[i + 1].begin : pattern_.size();
      name += pattern_.substr(part.end, next - part.end);
    }
    return name;
  }

 private:
  struct Part {
    std::size_t begin = 0, end = 0;
    std::string variable;  ///< "" is the process
  };
  std::string pattern_;
  std::vector<Part> parts_;
};

struct RecordedSummary {
  std::size_t processes = 0;   ///< that were recorded
  bool saw_process = false;    ///< the library was loaded into one, recorded or not
  bool saw_device = false;     ///< one of them initialized CUDA
  bool was_too_short = false;  ///< one of them ended before anything of it was written
  bool has_explained = false;  ///< why one was not was said
};

/// The program that was recorded.
struct RecordedProgram {
  std::string command;  ///< of rooflm, as records keep it
  int process = 0;
  core::ChildEnd end{};
  std::int64_t epoch_ns = 0;            ///< when it was started, steady clock: zero of all records
  std::vector<record::Gauge> gauges{};  ///< of the first device, since then
  foreign::StepsBy steps_by{};
};

/// Writes the records and prints a line for each: its path and contents.
RecordedSummary write_recorded(const std::vector<std::filesystem::path>& streams, const RecordName& name,
                               RecordedProgram program, bool overwrite);

}  // namespace rooflm::cli
