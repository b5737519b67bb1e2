// Files that may be compressed with gzip.
#pragma once

#include <string>
#include <string_view>

namespace rooflm::foreign {

/// Whether `bytes` begin as gzip does.
bool is_gzip(std::string_view bytes);

/// What `bytes` hold. `where` is the file, for messages. Ends that are missing leave what was there
/// (`is_cut` becomes true). Throws core::InputError for what is no gzip or damaged, and for what grows beyond
/// 2 GiB or to more than 200 times its size and 64 MiB.
std::string gunzip(std::string_view bytes, const std::string& where, bool& is_cut);

}  // namespace rooflm::foreign
