// Libraries opened at run time, because rooflm also runs without them.
#pragma once

#include <string>
#include <vector>

namespace rooflm::core {

/// A library that is opened and never closed: drivers and profilers keep state until the process ends.
class SharedLibrary {
 public:
  /// Opens the first of `files` that can be opened; names are searched by the loader, paths are used as
  /// given. `name` is for messages. Throws core::Unavailable "NAME is not here: why the first could not be
  /// opened".
  SharedLibrary(std::string name, const std::vector<std::string>& files);

  /// The function `symbol`; nullptr if the library does not have it. The caller supplies the right type.
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
