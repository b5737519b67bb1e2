// Fuzz target: run records, with every view in one of the formats, and the document of the page.
#include <array>
#include <vector>

#include "record/reader.h"
#include "report/document.h"
#include "report/verify.h"
#include "report/view_format.h"
#include "report/views.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  const auto path = fuzz::scratch_file("a.rooflm", fuzz::text_of(data, size));
  return fuzz::attempt([&] {
    const report::RecordSet set = report::load(std::array{path});
    std::vector<report::View> views;
    for (const report::ViewInfo& view : report::all_views())
      views.push_back(report::make_view(view.name, set));
    constexpr std::array kFormats{report::Format::table, report::Format::md, report::Format::csv,
                                  report::Format::json};
    // One of them, chosen by the input: a byte of SQLite's header that nothing reads.
    constexpr std::size_t kReserved = 72;
    const std::size_t chosen = size > kReserved ? data[kReserved] % kFormats.size() : 0;
    static_cast<void>(report::format_views(views, kFormats[chosen], report::data_link));
    static_cast<void>(report::make_document(set, nullptr));
    static_cast<void>(report::verify(record::Reader(path)));
  });
}
