// Tensors of a store as doubles, whether the store keeps fp32 or fp64.
#pragma once

#include <string>
#include <vector>

#include "engines/tensor_store.h"

namespace rooflm::tests {

inline bool is_double(const engines::TensorStore& store, const std::string& name) {
  return store.entries().at(name).tensor.dtype == core::DType::f64;
}

inline void write_values(engines::TensorStore& store, const std::string& name,
                         const std::vector<double>& values) {
  if (is_double(store, name)) return store.write<double>(name, values);
  store.write<float>(name, std::vector<float>(values.begin(), values.end()));
}

inline std::vector<double> read_values(const engines::TensorStore& store, const std::string& name) {
  if (is_double(store, name)) return store.read<double>(name);
  const auto values = store.read<float>(name);
  return {values.begin(), values.end()};
}

}  // namespace rooflm::tests
