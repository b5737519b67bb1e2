// The record that a command writes.
#include "cli/command_record.h"

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "cli/output.h"
#include "core/error.h"
#include "lab/run_record.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

fs::path make_temporary_folder() {
  std::string name = (fs::temp_directory_path() / "rooflm-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw core::InputError(name +
                           ": cannot make a temporary folder: " + std::generic_category().message(errno));
  }
  return name;
}

}  // namespace

CommandRecord::CommandRecord(const std::string& output, bool overwrite, const std::string& command)
    : folder_(output.empty() ? make_temporary_folder() : fs::path()),
      path_(output.empty() ? folder_ / "run.rooflm" : fs::path(output)) {
  writer_ = lab::open_record(path_, command, overwrite);
}

CommandRecord::~CommandRecord() {
  writer_.reset();
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

void CommandRecord::finish() {
  writer_->finish();
  if (folder_.empty()) note("record: {}", path_.string());
}

}  // namespace rooflm::cli
