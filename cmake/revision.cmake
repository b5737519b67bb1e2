# Writes OUTPUT, a source file with the git revision of SOURCE_DIR; does not touch it if that has not changed.
# Usage: cmake -D SOURCE_DIR=... -D OUTPUT=... -P revision.cmake
cmake_policy(VERSION 3.25)
execute_process(
  COMMAND git -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE revision
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT revision MATCHES "^[A-Za-z0-9_./+-]+$")
  set(revision unknown)
endif()
file(
  CONFIGURE
  OUTPUT "${OUTPUT}"
  CONTENT
    "// The revision of the sources, written by every build.
#include \"record/schema.h\"

namespace rooflm::record {

std::string_view revision() { return \"@revision@\"; }

}  // namespace rooflm::record
"
  @ONLY)
