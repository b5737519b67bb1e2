# The fast CPU kernels: plain functions on pointers that know only core/. They are optimised in every
# configuration, and may contract a multiplication and an addition into one rounding.
set(rooflm_cpu_fast_sources
  fast/activation.cpp
  fast/attention.cpp
  fast/attention_backward.cpp
  fast/attention_forward.cpp
  fast/elementwise.cpp
  fast/embedding.cpp
  fast/gemm.cpp
  fast/loss.cpp
  fast/norm.cpp
  fast/optimizer.cpp
  fast/rope.cpp)
set_source_files_properties(${rooflm_cpu_fast_sources} PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=fast;-Wno-psabi")
