# Writes a source file with a digest of the code that measures ceilings and of how it is compiled.
# Usage: cmake -D OUT=FILE -D BUILD=TEXT -P measuring_digest.cmake -- FILE...
cmake_policy(VERSION 3.25)
set(text "${BUILD}")
set(is_file OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(is_file)
    file(SHA256 "${CMAKE_ARGV${i}}" hash)
    string(APPEND text " ${hash}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(is_file ON)
  endif()
endforeach()
string(SHA256 digest "${text}")
string(SUBSTRING "${digest}" 0 12 digest)
file(
  CONFIGURE
  OUTPUT "${OUT}"
  CONTENT
    "// What this binary measures ceilings with. Written by cmake/measuring_digest.cmake.
#include \"lab/ceilings.h\"

namespace rooflm::lab {

std::string_view measuring_digest() { return \"@digest@\"; }

}  // namespace rooflm::lab
"
  @ONLY)
