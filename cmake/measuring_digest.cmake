# Generates a source file with a digest of the code that measures ceilings and of its compiler options. Usage:
# cmake -D OUT=FILE -D BUILD=TEXT -P measuring_digest.cmake -- FILE...
cmake_policy(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/script_arguments.cmake")
digest_of_files(digest "${BUILD}")
file(
  CONFIGURE
  OUTPUT "${OUT}"
  CONTENT
    "// What this binary measures ceilings with. Written by cmake/measuring_digest.cmake.
#include \"lab/ceilings/ceilings.h\"

namespace rooflm::lab {

std::string_view measuring_digest() { return \"@digest@\"; }

}  // namespace rooflm::lab
"
  @ONLY)
