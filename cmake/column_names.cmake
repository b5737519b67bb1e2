# Writes the list of column names that tables may have: cmake -DOUT=FILE -P column_names.cmake -- SOURCE...
# The names are extracted from the sources that make tables: literal keys and titles ({"step_s", "step", ..},
# set("step_s", ..), and other literals that look like keys), and composed keys, with * for the variable part.
include("${CMAKE_CURRENT_LIST_DIR}/script_arguments.cmake")
set(names "")
foreach(source IN LISTS script_arguments)
  file(READ "${source}" text)
  string(REGEX REPLACE "[][;]" " " text "${text}")  # special characters in CMake lists
  string(REGEX MATCHALL "\"[a-z][A-Za-z0-9_]*\"" keys "${text}")
  string(REGEX MATCHALL "{\"[A-Za-z0-9_]+\",[ \n]*\"[^\"\n]+\"" titles "${text}")
  list(TRANSFORM titles REPLACE "^{\"[A-Za-z0-9_]+\",[ \n]*" "")
  string(REGEX MATCHALL "fmt::format\\(\"({}_[a-z_]+|[a-z_]+_{})\"" formats "${text}")
  list(TRANSFORM formats REPLACE "^fmt::format\\(" "")
  list(TRANSFORM formats REPLACE "{}" "*")
  string(REGEX MATCHALL "\"[a-z][a-z_ /]+[_ ]\" \\+" prefixes "${text}")
  list(TRANSFORM prefixes REPLACE "\" .$" "*\"")
  string(REGEX MATCHALL "[^\"\n]*\\+ \"_[a-z_]+\"" suffixes "${text}")
  list(TRANSFORM suffixes REPLACE "^.*\\+ \"(.*)$" "\"*\\1")
  list(APPEND names ${keys} ${titles} ${formats} ${prefixes} ${suffixes})
endforeach()
list(REMOVE_DUPLICATES names)
list(SORT names)
list(JOIN names ",\n    " rows)
file(WRITE "${OUT}" "// Names of columns; written by cmake/column_names.cmake.
#include \"cli/column_names.h\"

#include <array>

namespace rooflm::cli {

std::span<const std::string_view> column_names() {
  static constexpr auto kNames = std::to_array<std::string_view>({
    ${rows}});
  return kNames;
}

}  // namespace rooflm::cli
")
