// The report page: one HTML file with the document inside, which opens from disk without a network.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace rooflm::report {

/// The page without data, as it was built with rooflm; "" when this build has none.
std::string_view page_template();
/// Why page_template is "": "built without npm".
std::string_view page_reason();

/// `page` with `document` in its element `<script id="rooflm-data" type="application/json">`. What HTML could
/// take for the end of the script ("</", "<!--") is written so that JSON reads the same. Throws
/// core::Unavailable when `page` is empty, core::InputError when it has no such element.
std::string fill_page(std::string_view page, std::string_view document);

/// Writes the page of this build with `document` to `path`, atomically. Throws core::Unavailable ("built
/// without npm: ...") when this build has no page; core::InputError when `path` exists and is no page of
/// rooflm, unless `overwrite`, and when it cannot be written.
void write_page(const std::filesystem::path& path, std::string_view document, bool overwrite);

/// Throws what write_page would throw before writing, so that a long run does not fail at its end.
void check_page_target(const std::filesystem::path& path, bool overwrite);
/// Throws core::Unavailable when this binary has no page.
void require_page();

}  // namespace rooflm::report
