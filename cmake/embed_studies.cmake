# Writes the texts of studies/*.toml into a source file, so that the binary carries them.
# Usage: cmake -DOUT=FILE -P embed_studies.cmake -- FILE...
set(rows "")
set(is_file OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(is_file)
    get_filename_component(name "${CMAKE_ARGV${i}}" NAME_WE)
    file(READ "${CMAKE_ARGV${i}}" text)
    string(APPEND rows "    {\"${name}\", R\"toml(${text})toml\"},\n")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(is_file ON)
  endif()
endforeach()
file(WRITE "${OUT}"
  "// The files of studies/, compiled in. Written by cmake/embed_studies.cmake.\n#include \"cli/shipped_studies.h\"\n\n"
  "#include <array>\n\nnamespace rooflm::cli {\nnamespace {\n\n"
  "constexpr auto kShippedStudies = std::to_array<ShippedStudy>({\n${rows}});\n\n}  // namespace\n\n"
  "std::span<const ShippedStudy> shipped_study_files() { return kShippedStudies; }\n\n}  // namespace rooflm::cli\n")
