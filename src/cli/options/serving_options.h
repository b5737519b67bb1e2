// The options of a served load: study serving.
#pragma once

#include <map>
#include <string>

#include "lab/serving_run.h"

namespace rooflm::cli {

/// Names of the options, without dashes, and what their help says.
const std::map<std::string, const char*>& serving_options();

/// From what was typed, by option name without dashes; an empty text stands for the default. Throws
/// core::UsageError naming the option, core::InputError naming the line of a file of lengths.
lab::ServingSettings serving_settings(const std::map<std::string, std::string>& typed);

}  // namespace rooflm::cli
