// The answer of a study in one sentence, with its numbers.
#pragma once

#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// What a record says of the study that made it.
struct StudyText {
  std::string name;                ///< "blocks"
  std::string title;               ///< one line
  std::string question;            ///< a sentence or two
  std::vector<std::string> views;  ///< that answer it, the most telling first; records of old have none
  std::string answer;              ///< of answer_names, or ""; records of old: `name`
};
/// From the first file of a study; empty texts without one.
StudyText study_of(const RecordSet& set);

/// What a study may ask to be answered: "blocks", "growth", ...
std::vector<std::string> answer_names();

/// One or two sentences that answer the study's question with the numbers of the record; "" for a study
/// that asks for none, and if the record lacks the numbers.
std::string answer_of(const RecordSet& set);

}  // namespace rooflm::report
