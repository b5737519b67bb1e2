// The records that the words of a command line name.
#include "cli/record_arguments.h"

#include <span>

#include "core/error.h"
#include "core/file.h"
#include "core/text_input.h"

namespace rooflm::cli {

RecordArguments::RecordArguments(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word != "-") {
      paths_.emplace_back(word);
      continue;
    }
    if (folder_) throw core::UsageError("-: standard input is one record, and can be read once");
    const std::string bytes = core::read_text("-");
    folder_.emplace();
    core::NewFile file(folder_->record());
    file.write(std::as_bytes(std::span(bytes)));
    file.commit();
    paths_.push_back(folder_->record());
  }
}

}  // namespace rooflm::cli
