# Writes the names that columns of tables may have: cmake -DOUT=FILE -DROOT=src -P column_names.cmake -- SOURCE...
# One list for each view (of its file views_*.cpp and what that includes of src/report), one for each source of
# tables of plan, program and the micro-benchmarks by its name, and "all". Names are extracted from the sources: literal keys and titles ({"step_s", "step", ..},
# set("step_s", ..), and other literals that look like keys), and composed keys, with * for the variable part.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/script_arguments.cmake")

# Files that hold names of other things: of kernels, of parts of models.
set(not_of_tables kernel_names common_parts)

# Sets names_of_FILE to the names in the file, includes_of_FILE to what it includes of src/report.
function(read_names file)
  file(READ "${file}" text)
  string(REGEX MATCHALL "#include \"report/[a-z_]+\\.h\"" includes "${text}")
  list(TRANSFORM includes REPLACE "^#include \"(.*)\"$" "${ROOT}/\\1")
  string(REGEX REPLACE "[][;]" " " text "${text}")  # special characters in CMake lists
  string(REGEX MATCHALL "\"[a-z][A-Za-z0-9_]*\"" keys "${text}")
  string(REGEX MATCHALL "{\"[A-Za-z0-9_]+\",[ \n]*\"[^\"\n]+\"" titles "${text}")
  list(TRANSFORM titles REPLACE "^{\"[A-Za-z0-9_]+\",[ \n]*" "")
  string(REGEX MATCHALL "\"of [a-z]+\"" shares "${text}")
  string(REGEX MATCHALL "fmt::format\\(\"({}_[a-z_]+|[a-z_]+_{})\"" formats "${text}")
  list(TRANSFORM formats REPLACE "^fmt::format\\(" "")
  list(TRANSFORM formats REPLACE "{}" "*")
  string(REGEX MATCHALL "\"[a-z][a-z_ /]+[_ ]\" \\+" prefixes "${text}")
  list(TRANSFORM prefixes REPLACE "\" .$" "*\"")
  string(REGEX MATCHALL "[^\"\n]*\\+ \"_[a-z_]+\"" suffixes "${text}")
  list(TRANSFORM suffixes REPLACE "^.*\\+ \"(.*)$" "\"*\\1")
  set("names_of_${file}" ${keys} ${titles} ${shares} ${formats} ${prefixes} ${suffixes} PARENT_SCOPE)
  set("includes_of_${file}" ${includes} PARENT_SCOPE)
endfunction()

# Adds a list of names to `arrays`, and to `groups` under each of the names that it has.
function(add_group number names)
  list(REMOVE_DUPLICATES names)
  list(SORT names)
  list(JOIN names ",\n    " rows)
  string(APPEND arrays "constexpr auto kNames${number} = std::to_array<std::string_view>({\n    ${rows}});\n")
  foreach(name IN LISTS ARGN)
    string(APPEND groups "    ColumnGroup{\"${name}\", kNames${number}},\n")
  endforeach()
  set(arrays "${arrays}" PARENT_SCOPE)
  set(groups "${groups}" PARENT_SCOPE)
endfunction()

file(GLOB headers "${ROOT}/report/*.h")
foreach(file IN LISTS script_arguments headers)
  read_names("${file}")
endforeach()
# Views of several runs have columns of the configuration, and that of memory has one for each role of a tensor.
set(more_of_bench_rows "${ROOT}/record/config.cpp")
set(more_of_sweep "${ROOT}/record/config.cpp")
set(more_of_program_report "${ROOT}/program/program.cpp")
set(more_of_views_memory "${ROOT}/program/program.cpp")
set(all "")
set(number 0)
foreach(source IN LISTS script_arguments)
  list(APPEND all ${names_of_${source}})
  math(EXPR number "${number} + 1")
  get_filename_component(stem "${source}" NAME_WE)
  set(names ${names_of_${ROOT}/report/views.cpp})
  set(waiting "${source}")
  set(seen "")
  while(waiting)
    list(POP_FRONT waiting file)
    get_filename_component(name "${file}" NAME_WE)
    if(file IN_LIST seen OR name IN_LIST not_of_tables)
      continue()
    endif()
    list(APPEND seen "${file}")
    list(APPEND names ${names_of_${file}})
    list(APPEND waiting ${more_of_${name}})
    foreach(header IN LISTS "includes_of_${file}")
      string(REGEX REPLACE "\\.h$" ".cpp" body "${header}")
      list(APPEND waiting "${header}" "${body}")
    endforeach()
  endwhile()
  if(stem MATCHES "^views_")
    file(READ "${source}" text)
    string(REGEX MATCHALL "info =[ \n]*{.name = \"[a-z_]+\"" views "${text}")
    list(TRANSFORM views REPLACE "^.*\"([a-z_]+)\"$" "\\1")
    add_group(${number} "${names}" ${views})
  elseif(stem MATCHES "^(plan_against|program_report|micro_cells)$")
    add_group(${number} "${names}" "${stem}.cpp")
  endif()
endforeach()
add_group(0 "${all}" "all")
file(WRITE "${OUT}" "// Names of columns; written by cmake/column_names.cmake.
#include \"cli/column_names.h\"

#include <array>

namespace rooflm::cli {
namespace {

${arrays}
constexpr std::array kColumnGroups = {
${groups}};

}  // namespace

std::span<const ColumnGroup> column_groups() { return kColumnGroups; }

}  // namespace rooflm::cli
")
