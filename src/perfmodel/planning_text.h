// The texts of data/op_times.json, links.json, frameworks.json and engines.json, compiled in.
#pragma once

#include <string_view>

namespace rooflm::perfmodel {

std::string_view op_times_text();
std::string_view links_text();
std::string_view frameworks_text();
std::string_view engines_text();

}  // namespace rooflm::perfmodel
