// Options that were renamed: their former names still work, and help does not list them.
#pragma once

#include <string>

namespace rooflm::cli {

/// The present name of an option (without dashes) that may be given by its former name: "search-products" is
/// "autotune". Other names are returned unchanged.
std::string present_name(const std::string& option);

/// The same of an argument of the command line: "--search-products=none" is "--autotune=none".
std::string present_argument(const std::string& argument);

}  // namespace rooflm::cli
