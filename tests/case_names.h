// Names of cases of parameterised tests, from the names of their parameters.
#pragma once

#include <cctype>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rooflm::tests {

/// As GoogleTest allows it: letters, digits and underscores.
inline std::string allowed(std::string name) {
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

template <class Part>
std::string part_name(const Part& part) {
  if constexpr (std::is_arithmetic_v<Part>) {
    return std::to_string(part);
  } else if constexpr (requires { name_of(part); }) {
    return std::string(name_of(part));
  } else {
    return std::string(part);
  }
}

/// "gpt2_fused_bf16_3": those with a name_of by it, numbers as they are.
template <class... Parts>
std::string case_name(const Parts&... parts) {
  std::string name;
  ((name += (name.empty() ? "" : "_") + part_name(parts)), ...);
  return allowed(std::move(name));
}

/// The same of a tuple, to be given to INSTANTIATE_TEST_SUITE_P.
struct TupleName {
  template <class Info>
  std::string operator()(const Info& info) const {
    return std::apply([](const auto&... parts) { return case_name(parts...); }, info.param);
  }
};

}  // namespace rooflm::tests
