# Decides whether the CUDA backend or its stub is built: sets ROOFLM_HAS_CUDA and, without it, ROOFLM_CUDA_REASON;
# with it ROOFLM_HAS_CUDNN and CUDNN_INCLUDE_DIR.
include(CheckLanguage)

set(ROOFLM_HAS_CUDA OFF)
set(ROOFLM_HAS_CUDNN OFF)
set(ROOFLM_CUDA_REASON "")
if(NOT ROOFLM_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ROOFLM_CUDA is '${ROOFLM_CUDA}': expected AUTO, ON or OFF")
endif()

if(ROOFLM_CUDA STREQUAL "OFF")
  set(ROOFLM_CUDA_REASON "ROOFLM_CUDA was OFF")
else()
  find_program(ROOFLM_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda /opt/cuda
               PATH_SUFFIXES bin DOC "The CUDA compiler")
  mark_as_advanced(ROOFLM_NVCC)
  if(NOT ROOFLM_NVCC OR NOT EXISTS "${ROOFLM_NVCC}")
    set(ROOFLM_CUDA_REASON "nvcc not found")
  else()
    # A compiler that is there but cannot compile (no headers, an unsupported host compiler) counts as absent.
    if(NOT DEFINED CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_COMPILER "${ROOFLM_NVCC}")
      check_language(CUDA)
    endif()
    if(CMAKE_CUDA_COMPILER)
      set(ROOFLM_HAS_CUDA ON)
    else()
      set(ROOFLM_CUDA_REASON "nvcc does not work")
    endif()
  endif()
  if(ROOFLM_CUDA STREQUAL "ON" AND NOT ROOFLM_HAS_CUDA)
    message(FATAL_ERROR "ROOFLM_CUDA is ON, but ${ROOFLM_CUDA_REASON}. Put nvcc on PATH, or set CUDACXX to it.")
  endif()
endif()

if(ROOFLM_HAS_CUDA)
  # Ampere, Ada, Hopper and Blackwell; the last one also as PTX for what comes after it.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90a-real 100-real 120
        CACHE STRING "Compute capabilities to compile for")
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc has C++20, which it has since 12.0.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  find_package(CUDAToolkit REQUIRED)
  # cuDNN: its attention is up to twice as fast as ours on Hopper, and there for architectures that we have not tuned
  # for. Only headers are needed; the library is looked for when rooflm runs.
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDNN_PATH PATH_SUFFIXES include)
  mark_as_advanced(CUDNN_INCLUDE_DIR)
  if(CUDNN_INCLUDE_DIR)
    set(ROOFLM_HAS_CUDNN ON)
  endif()
  message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}, cuDNN ${ROOFLM_HAS_CUDNN}")
else()
  message(STATUS "CUDA backend: a stub (${ROOFLM_CUDA_REASON})")
endif()
