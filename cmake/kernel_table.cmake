# rooflm_kernel_table(TARGET NAMESPACE name HEADER file FILES file...): generates kernels(), the kernel table
# of a folder, for TARGET. Every file NAME.cpp ends with a function NAME_rows(); HEADER declares MakerRows and
# kernels() in rooflm::backends::NAMESPACE. A new kernel is a new file, or a row in one, without a change of
# CMake files. Rows of one op are tried in the order of their file, those of several files in the order of names.
function(rooflm_kernel_table target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAMESPACE;HEADER" "FILES")
  set(declarations "")
  set(names "")
  foreach(file IN LISTS arg_FILES)
    get_filename_component(name "${file}" NAME_WE)
    string(APPEND declarations "MakerRows ${name}_rows();\n")
    list(APPEND names "${name}_rows")
  endforeach()
  list(JOIN names ", " names)
  string(REPLACE "::" "_" source "${arg_NAMESPACE}_kernels.cpp")
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${source}")
  file(
    CONFIGURE
    OUTPUT "${source}"
    CONTENT
      "// The rows of all kernel files of a folder. Written by cmake/kernel_table.cmake.
#include \"@arg_HEADER@\"

namespace rooflm::backends::@arg_NAMESPACE@ {

@declarations@
MakerRows kernels() {
  MakerRows all;
  for (auto* rows : {@names@}) {
    for (const MakerRow& row : rows()) all.push_back(row);
  }
  return all;
}

}  // namespace rooflm::backends::@arg_NAMESPACE@
"
    @ONLY)
  target_sources(${target} PRIVATE "${source}")
endfunction()
