// Answers of the studies whose results are cells: formats, GEMM strategies, attention alone, the largest
// model.
#pragma once

#include <string>

#include "report/model/run_data.h"

namespace rooflm::report {

/// Appends it behind a blank.
void add_sentence(std::string& text, const std::string& sentence);

// Each is one or two sentences; "" if the record lacks the numbers.

std::string answer_formats(const RecordSet& set);
std::string answer_gemm(const RecordSet& set);
std::string answer_attention_sweep(const RecordSet& set);
/// The largest model that study limits solved for.
std::string answer_solved(const RecordSet& set);

}  // namespace rooflm::report
