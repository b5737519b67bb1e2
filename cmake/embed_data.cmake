# rooflm_embed_data(ROOM HEADER NAME...): files of data/ compiled into a room. Sets `embedded` to a source that
# defines what HEADER declares: for each NAME `std::string_view NAME_text()`, the text of data/NAME.json.
function(rooflm_embed_data room header)
  set(functions "")
  foreach(name IN LISTS ARGN)
    set(file "${PROJECT_SOURCE_DIR}/data/${name}.json")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(READ "${file}" text)
    string(APPEND functions "std::string_view ${name}_text() { return R\"json(${text})json\"; }\n")
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${room}_data.cpp")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT [=[
// Files of data/, compiled in. Written by cmake/embed_data.cmake.
#include "@header@"

namespace rooflm::@room@ {

@functions@
}  // namespace rooflm::@room@
]=])
  set(embedded "${source}" PARENT_SCOPE)
endfunction()
