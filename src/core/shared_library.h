// Libraries that are opened when the program runs, because it also runs where they are missing.
#pragma once

#include <string>
#include <vector>

namespace rooflm::core {

/// A library, opened for good: those of drivers and profilers keep state until the process ends.
class SharedLibrary {
 public:
  /// Opens the first of `files` that can be: names are looked for as the system does, paths are taken as they
  /// are. `name` is what messages call it. Throws core::Unavailable "NAME is not here: why the first cannot
  /// be opened".
  SharedLibrary(std::string name, const std::vector<std::string>& files);

  /// The function `symbol`; nullptr when the library has none. The caller knows its type.
  template <class Function>
  [[nodiscard]] Function find(const char* symbol) const {
    return reinterpret_cast<Function>(address(symbol));
  }
  /// Sets `function` to it. Throws core::Unavailable "NAME has no SYMBOL: it is too old".
  template <class Function>
  void need(const char* symbol, Function& function) const {
    function = reinterpret_cast<Function>(needed_address(symbol));
  }

 private:
  [[nodiscard]] void* address(const char* symbol) const;
  [[nodiscard]] void* needed_address(const char* symbol) const;
  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace rooflm::core
