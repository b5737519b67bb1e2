// The page as CMake put it into the binary (embed_page.cmake). Private to the room.
#pragma once

#include <string_view>

namespace rooflm::report {

extern const std::string_view kPage;        ///< "" when there is none
extern const std::string_view kPageReason;  ///< why there is none

}  // namespace rooflm::report
