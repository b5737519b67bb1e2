// The files of studies/, compiled into the binary. The source is written by cmake/embed_studies.cmake.
#pragma once

#include <span>
#include <string_view>

namespace rooflm::cli {

struct ShippedStudy {
  std::string_view name;  ///< of the file, without its ending
  std::string_view text;
};

/// In the order of their names.
std::span<const ShippedStudy> shipped_study_files();

}  // namespace rooflm::cli
