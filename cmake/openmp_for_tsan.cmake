# LLVM's OpenMP runtime in the place of GCC's, for the thread sanitizer. GCC's waits in system calls that the sanitizer
# does not see, so that it takes every barrier for a race. LLVM's has the same entry points, and tells the sanitizer of
# barriers and tasks through libarcher.so, which it loads where it finds it. Programs find both by their rpath, under the
# names by which they and oneDNN ask for them.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  file(GLOB llvm_folders /usr/lib/llvm-*/lib)
  list(SORT llvm_folders COMPARE NATURAL ORDER DESCENDING)
  find_library(ROOFLM_LLVM_OPENMP libomp.so.5 PATHS ${llvm_folders} REQUIRED DOC "LLVM's OpenMP runtime (libomp-dev)")
  find_library(ROOFLM_ARCHER libarcher.so PATHS ${llvm_folders} REQUIRED DOC "Its tool for the thread sanitizer")
  mark_as_advanced(ROOFLM_LLVM_OPENMP ROOFLM_ARCHER)
  set(openmp_for_tsan "${PROJECT_BINARY_DIR}/openmp_for_tsan")
  file(MAKE_DIRECTORY "${openmp_for_tsan}")
  file(CREATE_LINK "${ROOFLM_LLVM_OPENMP}" "${openmp_for_tsan}/libgomp.so.1" SYMBOLIC)
  file(CREATE_LINK "${ROOFLM_ARCHER}" "${openmp_for_tsan}/libarcher.so" SYMBOLIC)
  # DT_RPATH, which libraries of libraries are looked for by, too; DT_RUNPATH is for a program's own.
  target_link_options(rooflm_settings INTERFACE "LINKER:-rpath,${openmp_for_tsan},--disable-new-dtags")
endif()
