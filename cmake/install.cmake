# What `cmake --install` and `cpack` deliver: the binary, its manual pages, shell completion, documentation
# and, as component dev, the library. Everything is found relative to the binary or embedded in it, so an
# installation can be moved.
include(GNUInstallDirs)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME runtime)
include(library)

# The binary generates its own manual pages and completion scripts.
set(shell_files "${PROJECT_BINARY_DIR}/share")
add_custom_command(
  OUTPUT "${shell_files}/made"
  COMMAND "${CMAKE_COMMAND}" -E make_directory "${shell_files}"
  COMMAND rooflm man -o "${shell_files}/man1" --overwrite
  COMMAND rooflm completion bash --all-devices > "${shell_files}/rooflm"
  COMMAND rooflm completion zsh --all-devices > "${shell_files}/_rooflm"
  COMMAND rooflm completion fish --all-devices > "${shell_files}/rooflm.fish"
  COMMAND "${CMAKE_COMMAND}" -E touch "${shell_files}/made"
  DEPENDS rooflm
  COMMENT "Manual pages and completion"
  VERBATIM)
add_custom_target(shell_files ALL DEPENDS "${shell_files}/made")

install(TARGETS rooflm RUNTIME)
# The library that `rooflm record` injects into programs. Nothing links with it, so no ldconfig is needed.
install(TARGETS rooflm_inject LIBRARY DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/rooflm")
# The CUDA kernel libraries, one per GPU family.
get_property(cuda_files GLOBAL PROPERTY ROOFLM_CUDA_FILES)
if(cuda_files)
  install(TARGETS ${cuda_files} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/rooflm")
endif()
install(DIRECTORY "${shell_files}/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}")
install(FILES "${shell_files}/rooflm" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
install(FILES "${shell_files}/_rooflm" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions")
install(FILES "${shell_files}/rooflm.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
# Where Debian's interpreters look; the compiled module works with one version of Python.
if(TARGET rooflm_python)
  install(TARGETS rooflm_python LIBRARY DESTINATION "lib/python3/dist-packages/rooflm")
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/rooflm" DESTINATION "lib/python3/dist-packages" FILES_MATCHING PATTERN "*.py")
install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" RENAME copyright)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/" DESTINATION "${CMAKE_INSTALL_DOCDIR}/docs" FILES_MATCHING PATTERN "*.md"
        PATTERN "*.csv" PATTERN "*.png" PATTERN "*.svg")
# docs/embed.md builds these against the library.
install(FILES "${PROJECT_SOURCE_DIR}/examples/price_a_step.cpp" "${PROJECT_SOURCE_DIR}/examples/train_by_hand.cpp"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples" COMPONENT dev)
install(FILES "${PROJECT_SOURCE_DIR}/examples/outside/CMakeLists.txt"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples/outside" COMPONENT dev)

# Everything that is installed, and nothing else: for `make package`.
add_custom_target(installed DEPENDS rooflm rooflm_inject rooflm_library shell_files ${cuda_files})
if(TARGET rooflm_python)
  add_dependencies(installed rooflm_python)
endif()

# Linking the library needs headers of the distribution's packages. All else brings its libraries: scripts/bundle.
set(CPACK_GENERATOR "DEB")
set(CPACK_PACKAGE_NAME rooflm)
set(CPACK_PACKAGE_CONTACT "the rooflm developers <rooflm@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_COMPONENTS_ALL dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME rooflm-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libfmt-dev, libdnnl-dev, libsqlite3-dev, nettle-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "The library rooflm::rooflm, for CMake")
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
include(CPack)
