// Rows of elements as Eigen arrays, for the reference kernels that need exp, tanh or GEMMs.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <string>

namespace rooflm::backends::cpu::reference {

/// `count` consecutive elements as an Eigen array.
template <class C>
auto array(const C* data, std::int64_t count) {
  return Eigen::Map<const Eigen::Array<C, Eigen::Dynamic, 1>>(data, count);
}
template <class C>
auto array(C* data, std::int64_t count) {
  return Eigen::Map<Eigen::Array<C, Eigen::Dynamic, 1>>(data, count);
}

/// "Eigen 3.4.0".
inline std::string eigen_version() {
  return "Eigen " + std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
         std::to_string(EIGEN_MINOR_VERSION);
}

}  // namespace rooflm::backends::cpu::reference
