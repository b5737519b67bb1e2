# rooflm_cublaslt_names(TARGET HEADER): extracts the names of cuBLASLt's tiles and stages from its header.
# There are six hundred, and they differ between versions.
function(rooflm_cublaslt_names target header)
  foreach(kind IN ITEMS TILE STAGES)
    set(${kind} "")
    file(STRINGS "${header}" lines REGEX "CUBLASLT_MATMUL_${kind}_[0-9]+x[0-9A-Z]+ = [0-9]+")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE ".*_${kind}_([0-9]+x[0-9A-Z]+) = ([0-9]+).*" "    {\\2, \"\\1\"},\n" row "${line}")
      string(APPEND ${kind} "${row}")
    endforeach()
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/cublaslt_names.cpp")
  file(
    CONFIGURE
    OUTPUT "${source}"
    CONTENT
      "// Names of cuBLASLt's enumerations. Written by cmake/cublaslt_names.cmake.
#include <utility>

#include \"backends/cuda/gemm_algorithm.h\"

namespace rooflm::backends::cuda {
namespace {

using Name = std::pair<std::uint32_t, std::string_view>;
constexpr Name kTiles[] = {
@TILE@};
constexpr Name kStages[] = {
@STAGES@};

template <std::size_t kCount>
std::string_view find(const Name (&names)[kCount], std::uint32_t id) {
  for (const auto& [value, name] : names) {
    if (value == id) return name;
  }
  return {};
}

}  // namespace

std::string_view tile_name(std::uint32_t id) { return find(kTiles, id); }
std::string_view stages_name(std::uint32_t id) { return find(kStages, id); }

}  // namespace rooflm::backends::cuda
"
    @ONLY)
  target_sources(${target} PRIVATE "${source}")
endfunction()
