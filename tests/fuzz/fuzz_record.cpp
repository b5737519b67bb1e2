// Fuzz target: run records. Each input is opened, and one of a view, the page's document and the laws is made
// of it.
#include <array>
#include <functional>
#include <span>
#include <string_view>

#include "record/reader.h"
#include "report/page/document.h"
#include "report/verify/verify.h"
#include "report/views/view_format.h"
#include "report/views/views.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/sqlite_memory.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  rooflm::fuzz::give_sqlite_plain_memory();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  const std::string_view text = fuzz::text_of(data, size);
  const auto path = fuzz::scratch_file("a.rooflm", text);
  return fuzz::attempt([&] {
    // All of them for every input would be a twentieth of the inputs. A checksum chooses evenly, and the same
    // each time.
    const std::size_t chosen = std::hash<std::string_view>{}(text);
    const std::span<const report::ViewInfo> views = report::all_views();
    constexpr std::array kFormats{report::Format::table, report::Format::md, report::Format::csv,
                                  report::Format::json};
    const std::size_t part = chosen % (views.size() + 2);
    if (part == views.size() + 1) {
      static_cast<void>(report::verify(record::Reader(path)));
      return;
    }
    const report::RecordSet set = report::load(std::array{path});
    if (part == views.size()) {
      static_cast<void>(report::make_document(set, nullptr));
      return;
    }
    const std::array view{report::make_view(views[part].name, set)};
    static_cast<void>(report::format_views(view, kFormats[chosen / 64 % kFormats.size()], report::data_link));
  });
}
