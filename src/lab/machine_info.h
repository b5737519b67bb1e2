// The machine and what this binary was built with, as `info` prints it and records keep it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace rooflm::lab {

/// One JSON object with every number in full.
std::string machine_json();
/// The same for people, in order: ("processor", "AMD EPYC ..."), ("memory", "25.3 GB, 24.8 GB free"), ...
/// With `opens`, GPUs are opened and tried; otherwise their driver is asked, which takes none of their
/// memory.
std::vector<std::pair<std::string, std::string>> machine_lines(bool opens);

}  // namespace rooflm::lab
