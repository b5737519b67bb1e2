# Headers of others that most sources include are parsed once for all rooms, and once more for those with OpenMP,
# whose macro makes them other headers to the compiler. -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON finds a source that forgot
# to include one, and so does scripts/lint, which compiles without them.
foreach(kind IN ITEMS plain openmp)
  add_library(rooflm_precompiled_${kind} OBJECT "${PROJECT_SOURCE_DIR}/cmake/precompiled.cpp")
  target_link_libraries(rooflm_precompiled_${kind} PRIVATE rooflm_settings fmt::fmt)
  target_precompile_headers(
    rooflm_precompiled_${kind} PRIVATE <fmt/format.h> <algorithm> <array> <cmath> <cstdint> <filesystem> <functional>
    <map> <memory> <optional> <span> <string> <string_view> <unordered_map> <utility> <vector>)
endforeach()
target_link_libraries(rooflm_precompiled_openmp PRIVATE OpenMP::OpenMP_CXX)

option(ROOFLM_UNITY "Compile several files of a room as one: a cold build takes two thirds of the time" ON)

# rooflm_room(NAME [FOLDERS folder...] [EXTRA file...] [PUBLIC library...] [PRIVATE library...]): the library
# rooflm_NAME of a room of src/, made of every .cpp of its folder and of FOLDERS below it. Files are found, not
# listed: a new op, kernel, view or pass is a file and no line of CMake, and `ninja` notices it (CONFIGURE_DEPENDS).
function(rooflm_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS;EXTRA;PUBLIC;PRIVATE")
  set(patterns *.cpp)
  foreach(folder IN LISTS arg_FOLDERS)
    list(APPEND patterns "${folder}/*.cpp")
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")  # of an executable: a test that links the room has its own
  add_library(rooflm_${name} STATIC ${sources} ${arg_EXTRA})
  if(name MATCHES "^backend_")  # flags of their own
  elseif("OpenMP::OpenMP_CXX" IN_LIST arg_PRIVATE)
    target_precompile_headers(rooflm_${name} REUSE_FROM rooflm_precompiled_openmp)
  else()
    target_precompile_headers(rooflm_${name} REUSE_FROM rooflm_precompiled_plain)
  endif()
  target_link_libraries(rooflm_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  # Half of a cold build's time is reading the same headers again. Backends have flags for single files, and files of
  # which only one is meant for a machine.
  if(ROOFLM_UNITY AND NOT name MATCHES "^backend_")
    set_target_properties(rooflm_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
    # Of classes whose members are of types of one file: for the compiler that file is now a header.
    target_compile_options(rooflm_${name} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()
