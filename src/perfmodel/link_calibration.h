// Links as `rooflm comm` measured them, for plans.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perfmodel/cluster.h"
#include "record/reader.h"

namespace rooflm::perfmodel {

/// Times of collectives within a node, by what each rank sends, from the cells of `rooflm comm`. Lines to
/// print about them; nothing where the record has none. Throws core::InputError for ranks on several hosts,
/// and where the catalog has no link.
std::optional<std::vector<std::string>> take_links(const record::Reader& record, Cluster& cluster);

}  // namespace rooflm::perfmodel
