// Libraries opened at run time.
#include "core/system/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace rooflm::core {

SharedLibrary::SharedLibrary(std::string name, const std::vector<std::string>& files)
    : name_(std::move(name)) {
  std::string reason;
  for (const std::string& file : files) {
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_ != nullptr) return;
    if (reason.empty()) reason = dlerror();
  }
  throw Unavailable(fmt::format("{} is not here: {}", name_, reason));
}

void* SharedLibrary::address(const char* symbol) const { return dlsym(handle_, symbol); }

void* SharedLibrary::needed_address(const char* symbol) const {
  void* found = address(symbol);
  if (found == nullptr) throw Unavailable(fmt::format("{} has no {}: it is too old", name_, symbol));
  return found;
}

}  // namespace rooflm::core
