// The record that a command writes.
#include "cli/command_record.h"

#include "cli/output.h"
#include "cli/output_rule.h"
#include "lab/run_record.h"

namespace rooflm::cli {

CommandRecord::CommandRecord(const std::string& output, bool overwrite, const std::string& command,
                             bool has_machine)
    : is_printed_(output == kStandardOutput) {
  if (output.empty() || is_printed_) folder_.emplace();
  path_ = folder_ ? folder_->record() : std::filesystem::path(output);
  writer_ = lab::open_record(path_, command, overwrite, has_machine);
}

void CommandRecord::finish() {
  writer_->finish();
  if (is_printed_) copy_to_output(path_);
  if (!folder_) note("record: {}", path_.string());
}

}  // namespace rooflm::cli
