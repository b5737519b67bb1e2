# The target check_headers compiles each header of src/ alone: a header must include everything that it uses.
# A header that its source includes first is already compiled that way, so only the others are checked here.
file(GLOB_RECURSE rooflm_headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/src/*.h")
if(NOT ROOFLM_HAS_CUDA)
  list(FILTER rooflm_headers EXCLUDE REGEX "^backends/cuda/")  # they need CUDA's headers
endif()
if(NOT ROOFLM_HAS_CUDNN)
  list(FILTER rooflm_headers EXCLUDE REGEX "^backends/cuda/cudnn_(library|graph|attention_graphs)")
endif()
set(rooflm_header_sources "")
foreach(header IN LISTS rooflm_headers)
  string(REGEX REPLACE "h$" "cpp" own_source "${PROJECT_SOURCE_DIR}/src/${header}")
  if(EXISTS "${own_source}")
    file(STRINGS "${own_source}" includes REGEX "^#include " LIMIT_COUNT 1)
    if(includes STREQUAL "#include \"${header}\"")
      continue()
    endif()
  endif()
  string(REPLACE "/" "__" source "${header}")
  set(source "${PROJECT_BINARY_DIR}/header_check/${source}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"@header@\"  // once\n#include \"@header@\"  // and again\n" @ONLY)
  list(APPEND rooflm_header_sources "${source}")
endforeach()

add_library(check_headers OBJECT EXCLUDE_FROM_ALL ${rooflm_header_sources})
target_compile_options(check_headers PRIVATE -O0 -Wno-psabi)
target_link_libraries(check_headers PRIVATE rooflm_settings fmt::fmt Eigen3::Eigen OpenMP::OpenMP_CXX
                                            $<$<BOOL:${ROOFLM_HAS_CUDA}>:CUDA::cudart_static>)
