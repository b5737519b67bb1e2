// The texts of data/op_times.json, data/links.json and data/frameworks.json, compiled in.
#pragma once

#include <string_view>

namespace rooflm::perfmodel {

std::string_view op_times_text();
std::string_view links_text();
std::string_view frameworks_text();

}  // namespace rooflm::perfmodel
