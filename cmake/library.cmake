# The library for other programs, `find_package(rooflm CONFIG)`: the rooms that build a program, price it and
# run it on the CPU, as one archive with their headers. It contains the same objects as the binary.
set(rooms core ranks program record model compile devices backends engines perfmodel)
set(objects "")
foreach(library IN LISTS rooms ITEMS comm backend_cpu backend_null)
  list(APPEND objects $<TARGET_OBJECTS:rooflm_${library}>)
endforeach()
get_target_property(levels rooflm_backend_cpu ROOFLM_LEVEL_OBJECTS)
if(levels)
  set_source_files_properties(${levels} PROPERTIES GENERATED ON EXTERNAL_OBJECT ON)
  list(APPEND objects ${levels})
endif()
add_library(rooflm_library STATIC ${objects})
set_target_properties(rooflm_library PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME rooflm EXPORT_NAME rooflm)
target_include_directories(rooflm_library INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/rooflm>")
target_compile_features(rooflm_library INTERFACE cxx_std_20)
# oneDNN by name: Debian's package has a CMake configuration that requires OpenCL.
target_link_libraries(rooflm_library PRIVATE fmt::fmt SQLite::SQLite3 OpenMP::OpenMP_CXX dnnl nettle ${CMAKE_DL_LIBS})

include(CMakePackageConfigHelpers)
set(rooflm_cmake "${CMAKE_INSTALL_LIBDIR}/cmake/rooflm")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/rooflm-config.cmake.in" "${PROJECT_BINARY_DIR}/rooflm-config.cmake"
                              INSTALL_DESTINATION "${rooflm_cmake}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/rooflm-config-version.cmake" COMPATIBILITY SameMinorVersion)

install(TARGETS rooflm_library EXPORT rooflm ARCHIVE COMPONENT dev)
install(EXPORT rooflm NAMESPACE rooflm:: FILE rooflm-targets.cmake DESTINATION "${rooflm_cmake}" COMPONENT dev)
install(FILES "${PROJECT_BINARY_DIR}/rooflm-config.cmake" "${PROJECT_BINARY_DIR}/rooflm-config-version.cmake"
        DESTINATION "${rooflm_cmake}" COMPONENT dev)
# Of the backends only what engines need, and how the backends of this archive are made.
foreach(room IN LISTS rooms)
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${room}/*.h")
  # need headers of dependencies; list backends of the binary
  list(FILTER headers EXCLUDE REGEX "/(core/json|backends/token_ids|backends/registry)\\.h$")
  install(FILES ${headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/rooflm/${room}" COMPONENT dev)
endforeach()
foreach(folder IN ITEMS core/system compile/passes compile/planned)
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*.h")
  install(FILES ${headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/rooflm/${folder}" COMPONENT dev)
endforeach()
foreach(backend IN ITEMS cpu null)
  install(FILES "${PROJECT_SOURCE_DIR}/src/backends/${backend}/${backend}_backend.h"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/rooflm/backends/${backend}" COMPONENT dev)
endforeach()
