# Embeds the texts of studies/*.toml in a source file. Usage: cmake -DOUT=FILE -P embed_studies.cmake --
# FILE...
include("${CMAKE_CURRENT_LIST_DIR}/script_arguments.cmake")
set(rows "")
foreach(file IN LISTS script_arguments)
  get_filename_component(name "${file}" NAME_WE)
  file(READ "${file}" text)
  string(APPEND rows "    {\"${name}\", R\"toml(${text})toml\"},\n")
endforeach()
file(WRITE "${OUT}"
  "// The files of studies/, compiled in. Written by cmake/embed_studies.cmake.\n#include \"cli/shipped_studies.h\"\n\n"
  "#include <array>\n\nnamespace rooflm::cli {\nnamespace {\n\n"
  "constexpr auto kShippedStudies = std::to_array<ShippedStudy>({\n${rows}});\n\n}  // namespace\n\n"
  "std::span<const ShippedStudy> shipped_study_files() { return kShippedStudies; }\n\n}  // namespace rooflm::cli\n")
