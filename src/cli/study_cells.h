// The studies that are no training steps: their rows as cells of a record.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "record/rows.h"

namespace rooflm::cli {

/// Options of a study, "seq" -> "256,512", as typed.
using StudyOptions = std::map<std::string, std::string>;

/// Matrix products of n x n, `count` of them, by strategy. Throws core::UsageError for options.
std::vector<record::Cell> gemm_cells(const StudyOptions& options, int threads);
/// Attention alone over batch, heads, head-dim, seq, kind and dtype; what does not fit has status oom.
std::vector<record::Cell> attention_cells(const StudyOptions& options, int threads);
/// Number formats: bytes of an n x n matrix, largest and smallest numbers, spacing at 1, what underflows, and
/// which values of a step each is used for.
std::vector<record::Cell> format_cells(const StudyOptions& options);

}  // namespace rooflm::cli
