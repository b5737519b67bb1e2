// The first page of a folder of studies: each with its question, its answer and a link to its page.
#pragma once

#include <span>
#include <string>

namespace rooflm::report {

struct StudyEntry {
  std::string name;  ///< its page is NAME.html, its record NAME.rooflm
  std::string title, question;
  std::string answer{};   ///< "" where the study has none
  std::string problem{};  ///< why it did not run here
};

/// One HTML file without scripts, which opens from disk, in light and dark.
std::string study_index(std::span<const StudyEntry> entries);

}  // namespace rooflm::report
