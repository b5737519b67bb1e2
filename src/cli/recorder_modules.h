// The Python modules of the recorder, compiled in from src/inject/python (src/cli/CMakeLists.txt).
#pragma once

#include <span>

namespace rooflm::cli {

struct RecorderModule {
  const char* name;  ///< "sitecustomize.py"
  const char* text;
};

std::span<const RecorderModule> recorder_modules();

}  // namespace rooflm::cli
