# Sources of the fast CPU kernels (included by CMakeLists.txt of this folder). They are compiled for this machine.
set(rooflm_cpu_fast_sources
    fast/activation.cpp
    fast/attention.cpp
    fast/elementwise.cpp
    fast/embedding.cpp
    fast/gemm.cpp
    fast/loss.cpp
    fast/norm.cpp
    fast/optimizer.cpp
    fast/rope.cpp)
set_source_files_properties(
  ${rooflm_cpu_fast_sources}
  PROPERTIES COMPILE_OPTIONS
             "-O3;-march=native;-mprefer-vector-width=512;-fopenmp;-ffp-contract=fast")
