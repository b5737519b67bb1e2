// CUPTI's functions for steps of our own engines.
#include "trace/cupti/cupti_library.h"

#include <cstdint>

#include "core/error.h"

namespace rooflm::trace {

core::SharedLibrary open_cupti_library() { return {"CUPTI", cupti_files()}; }

CuptiLibrary CuptiLibrary::load() {
  CuptiLibrary found;
  std::string why;
  if (!static_cast<CuptiFunctions&>(found).load(why)) throw core::Unavailable(why);
  return found;
}

std::string CuptiLibrary::version_text() const {
  std::uint32_t number = 0;
  check(version(&number), "asking for its version");
  return cupti_version_text(number);
}

void CuptiLibrary::check(CUptiResult result, std::string_view what) const {
  if (result != CUPTI_SUCCESS) throw core::Unavailable(words(result, what));
}

}  // namespace rooflm::trace
