# Compile settings of all targets: rooflm_settings, which rooflm_core passes on to whatever links it.
include(CheckCXXSourceCompiles)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(rooflm_settings INTERFACE)
target_include_directories(rooflm_settings INTERFACE "${PROJECT_SOURCE_DIR}/src")
target_compile_features(rooflm_settings INTERFACE cxx_std_20)
target_compile_options(rooflm_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow>)
# Warnings that GCC derives from optimised code differ between versions and CPUs (-march=native on a Zen 4
# takes a short string for one of 2^63 bytes). They must not break a build on another machine.
foreach(conclusion maybe-uninitialized stringop-overflow stringop-overread array-bounds restrict free-nonheap-object)
  target_compile_options(rooflm_settings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=${conclusion}>)
endforeach()
# From GCC 13 on, any function that takes a temporary and returns a reference "possibly dangles".
target_compile_options(rooflm_settings INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference>)
# GCC's own attributes, such as noipa, are no mistakes.
target_compile_options(rooflm_settings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-unknown-attributes>)

# Kernels compiled for several instruction sets (cmake/processor_levels.cmake) set their own.
set(own "$<TARGET_PROPERTY:ROOFLM_PROCESSOR>")
if(ROOFLM_NATIVE)
  target_compile_options(rooflm_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:$<IF:$<BOOL:${own}>,${own},-march=native>>)
  set(CMAKE_REQUIRED_FLAGS "-march=native -mprefer-vector-width=512")
  check_cxx_source_compiles("
    #ifndef __AVX512F__
    #error this processor has no AVX-512
    #endif
    int main() { return 0; }" ROOFLM_HAS_AVX512)
  unset(CMAKE_REQUIRED_FLAGS)
  if(ROOFLM_HAS_AVX512)
    target_compile_options(rooflm_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-mprefer-vector-width=512>)
  endif()
endif()

if(NOT ROOFLM_NATIVE AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  target_compile_options(
    rooflm_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:$<IF:$<BOOL:${own}>,${own},-march=${ROOFLM_PROCESSOR}>>)
  if(ROOFLM_PROCESSOR MATCHES "^x86-64-v")
    # On a CPU that is too old the loader refuses the binary with a reason, instead of it dying at an illegal
    # instruction.
    target_link_options(rooflm_settings INTERFACE $<$<LINK_LANGUAGE:CXX>:LINKER:-z,${ROOFLM_PROCESSOR}>)
  endif()
endif()

if(ROOFLM_SANITIZE)
  target_compile_options(
    rooflm_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ROOFLM_SANITIZE};-fno-omit-frame-pointer>)
  target_link_options(rooflm_settings INTERFACE -fsanitize=${ROOFLM_SANITIZE})
  if(ROOFLM_SANITIZE MATCHES "thread")
    include(openmp_for_tsan)
  endif()
endif()
