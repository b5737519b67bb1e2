# Dependencies' headers that most sources include are precompiled once for all rooms with the same
# optimisation level. -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON finds sources with missing includes, and so does
# scripts/lint, which compiles without precompiled headers.
set(rooflm_light_options $<$<CONFIG:Release>:-O1>)
# Rooms are also linked into the Python module, a shared object; hidden symbols cost nothing there.
set(rooflm_shared_options -fPIC -fvisibility=hidden)
foreach(kind IN ITEMS plain light)
  add_library(rooflm_precompiled_${kind} OBJECT "${PROJECT_SOURCE_DIR}/cmake/precompiled.cpp")
  target_link_libraries(rooflm_precompiled_${kind} PRIVATE rooflm_settings fmt::fmt)
  target_compile_options(rooflm_precompiled_${kind} PRIVATE ${rooflm_shared_options})
  target_precompile_headers(
    rooflm_precompiled_${kind} PRIVATE <fmt/format.h> <algorithm> <array> <cmath> <cstdint> <filesystem> <functional>
    <map> <memory> <optional> <span> <string> <string_view> <unordered_map> <utility> <vector>)
endforeach()
target_compile_options(rooflm_precompiled_light PRIVATE ${rooflm_light_options})

option(ROOFLM_UNITY "Compile several files of a room as one: a cold build takes two thirds of the time" ON)

# rooflm_room(NAME [LIGHT] [FOLDERS folder...] [EXTRA file...] [PUBLIC library...] [PRIVATE library...]): the
# library rooflm_NAME of a room of src/, made of every .cpp in its folder and in FOLDERS below it. Files are
# globbed: a new op, kernel, view or pass is a new file without a change of CMake files, and `ninja` notices
# it (CONFIGURE_DEPENDS). LIGHT: a room without hot loops compiles a quarter faster with -O1.
function(rooflm_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LIGHT" "" "FOLDERS;EXTRA;PUBLIC;PRIVATE")
  set(patterns *.cpp)
  foreach(folder IN LISTS arg_FOLDERS)
    list(APPEND patterns "${folder}/*.cpp")
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  # belongs to an executable; a test that links the room has its own
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  add_library(rooflm_${name} STATIC ${sources} ${arg_EXTRA})
  set(kind plain)
  if(arg_LIGHT)
    set(kind light)
    target_compile_options(rooflm_${name} PRIVATE ${rooflm_light_options})
  endif()
  # Backends have flags of their own; OpenMP's macro changes how the headers compile.
  if(NOT name MATCHES "^backend_" AND NOT "OpenMP::OpenMP_CXX" IN_LIST arg_PRIVATE)
    target_precompile_headers(rooflm_${name} REUSE_FROM rooflm_precompiled_${kind})
  endif()
  if(NOT name MATCHES "^backend_")
    target_compile_options(rooflm_${name} PRIVATE ${rooflm_shared_options})
  endif()
  target_link_libraries(rooflm_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  # Reading the same headers again is half of a cold build's time. Not for backends: they have flags for
  # single files, and files of which only one suits a machine.
  if(ROOFLM_UNITY AND NOT name MATCHES "^backend_")
    set_target_properties(rooflm_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
    # Classes whose members have types of one file: to the compiler that file is now a header.
    target_compile_options(rooflm_${name} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()
