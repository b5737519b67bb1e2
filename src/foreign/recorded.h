// What the injection library wrote of a process, as a run in the making.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "foreign/foreign_run.h"

namespace rooflm::foreign {

struct RecordedProcess {
  ForeignRun run;
  std::int64_t process = 0, parent = 0;
  std::map<std::string, std::string> facts;  ///< "command", "environment RANK", "torch", ...
  std::int64_t start_ns = 0;                 ///< steady clock
  std::size_t kernels = 0;
  std::int64_t dropped = 0;
  bool has_ended = false;     ///< in order
  bool has_device = false;    ///< CUDA was initialized
  bool is_cut = false;        ///< the file ends in the middle
  bool only_samples = false;  ///< nothing is known of it but where its threads were
  std::string problem;        ///< one line, "" where nothing was wrong
};

/// Whether `bytes` begin as a stream does.
bool is_stream(std::string_view bytes);
/// Reads the stream `path`, as far as it is whole. Times of the run begin at `epoch_ns` of the steady clock,
/// 0: at the process's own start. Throws core::InputError, naming the file and the place, for what is no
/// stream.
RecordedProcess read_stream(const std::filesystem::path& path, std::int64_t epoch_ns = 0);

}  // namespace rooflm::foreign
