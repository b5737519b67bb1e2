# Replaces GCC's OpenMP runtime by LLVM's for the thread sanitizer. GCC's waits in system calls that the
# sanitizer does not see, so it reports every barrier as a race. LLVM's has the same entry points, and reports
# barriers and tasks to the sanitizer through libarcher.so, which it loads if it finds it. Programs find both
# by their rpath, under the names that they and oneDNN use.
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
  # DT_RPATH, which also applies to libraries of libraries; DT_RUNPATH applies only to the program's own.
  target_link_options(rooflm_settings INTERFACE "LINKER:-rpath,${openmp_for_tsan},--disable-new-dtags")
endif()
