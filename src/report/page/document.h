// The one JSON document that the report page reads.
#pragma once

#include <string>
#include <vector>

#include "report/model/run_data.h"
#include "report/tables/compare.h"

namespace rooflm::report {

/// Version of the document's schema; the page refuses others.
inline constexpr int kDocumentSchema = 1;

/// All of the records as one JSON object in one line (docs/design.md, "report", lists its parts). Times are
/// seconds, sizes bytes, work flop. `comparison` may be nullptr; it is of the first two files, or within one.
std::string make_document(const RecordSet& set, const Comparison* comparison);

/// How it was measured and how certain it is, in sentences about what the records have.
std::vector<std::string> method_sentences(const RecordSet& set);

}  // namespace rooflm::report
