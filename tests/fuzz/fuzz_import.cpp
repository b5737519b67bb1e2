// Fuzz target: traces and snapshots of other tools. Every input is read. What was read of one in sixteen
// becomes a record, of which a view and an export are made.
#include <array>
#include <functional>
#include <span>
#include <string_view>

#include "foreign/import.h"
#include "record/writer.h"
#include "report/export/export.h"
#include "report/model/run_data.h"
#include "report/views/views.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/sqlite_memory.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  rooflm::fuzz::give_sqlite_plain_memory();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  const std::string_view bytes = fuzz::text_of(data, size);
  const auto path = fuzz::scratch_file("trace", bytes);
  return fuzz::attempt([&] {
    foreign::ForeignRun run = foreign::import_file(path, "");
    // To write a record, load and show it takes most of the time of an input. A checksum chooses evenly, and
    // the same each time.
    const std::size_t chosen = std::hash<std::string_view>{}(bytes);
    constexpr std::size_t kOneIn = 16;
    if (run.is_empty() || chosen % kOneIn != 0) return;
    const auto made = fuzz::scratch_folder() / "trace.rooflm";
    std::filesystem::remove(made);
    {
      record::Writer writer(made, "fuzz");
      static_cast<void>(run.write(writer));
      writer.finish();
    }
    const report::RecordSet set = report::load(std::array{made});
    const std::span<const report::ExportFormat> formats = report::export_formats();
    const report::ExportFormat& format = formats[chosen / kOneIn % formats.size()];
    const report::ExportSource source{.file = set.files.front(), .run = set.runs.front()};
    if (format.write != nullptr) {
      static_cast<void>(format.write(source, [](std::string_view) {}));
    } else {
      static_cast<void>(format.write_database(source, fuzz::scratch_file("a.sqlite", "")));
    }
    const std::span<const report::ViewInfo> views = report::all_views();
    static_cast<void>(report::make_view(views[chosen / 1024 % views.size()].name, set));
  });
}
