// Links as `rooflm comm` measured them, for plans.
#pragma once

#include "perfmodel/cluster.h"
#include "record/reader.h"

namespace rooflm::cli {

/// Times of collectives within a node, by what each rank sends, from the cells of `rooflm comm`; whether the
/// record has any. Throws core::InputError for ranks on several hosts, and where the catalog has no link.
bool take_links(const record::Reader& record, perfmodel::Cluster& cluster);

}  // namespace rooflm::cli
