# Generates a source file with the list of all ops, from their declarations in program/ops.h. Usage: cmake -D
# OPS_H=FILE -D OUT=FILE -P list_ops.cmake
cmake_policy(VERSION 3.25)
file(STRINGS "${OPS_H}" declarations REGEX "^extern const OpDef ")
string(REGEX MATCHALL "k[A-Z][A-Za-z0-9]*" names "${declarations}")
list(JOIN names ",\n                                      &" rows)
file(WRITE "${OUT}"
  "// The list of all ops. Written by cmake/list_ops.cmake.\n#include <array>\n\n#include \"program/ops.h\"\n\n"
  "namespace rooflm::program::ops {\n\nstd::span<const OpDef* const> all() {\n"
  "  static constexpr std::array kAll = {&${rows}};\n  return kAll;\n}\n\n}  // namespace rooflm::program::ops\n")
