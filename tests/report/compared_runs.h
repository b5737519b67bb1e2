// Made-up records, compared.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "record/reader.h"
#include "record/writer.h"
#include "report/tables/compare.h"
#include "tests/record/record_testing.h"
#include "tests/report/made_up_run.h"

namespace rooflm::report {

inline record::Reader write_record(const std::filesystem::path& path, const std::vector<MadeUpRun>& runs) {
  record::Writer writer(path, "made up");
  for (const MadeUpRun& run : runs) run.write(writer);
  writer.finish();
  return record::Reader(path);
}

inline Comparison compare_runs(const std::vector<MadeUpRun>& a, const std::vector<MadeUpRun>& b) {
  const record::TemporaryFolder folder;
  return compare(write_record(folder / "a.rooflm", a), write_record(folder / "b.rooflm", b),
                 {.restart = 0.02});
}

inline MadeUpRun with_seq(MadeUpRun run, std::int64_t seq) {
  run.run.config.set("seq", seq);
  run.run.label = "T=" + std::to_string(seq);
  return run;
}

inline const ComparedTime& row_of(const Comparison& comparison, std::string_view subject) {
  const auto found = std::ranges::find(comparison.rows, subject, &ComparedTime::subject);
  if (found == comparison.rows.end()) throw std::runtime_error("no such row");
  return *found;
}

inline bool has_note(const Comparison& comparison, std::string_view part) {
  return std::ranges::any_of(comparison.notes,
                             [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

/// Runs of one program: each starts a little different from the others, by `spread`.
inline std::vector<MadeUpRun> started(double scale, double spread, std::uint64_t seed,
                                      std::size_t count = 8) {
  std::vector<MadeUpRun> runs;
  for (std::size_t i = 0; i < count; ++i) {
    const double offset =
        spread * (static_cast<double>((i * 5 + seed) % count) / static_cast<double>(count) - 0.5);
    runs.push_back(made_up_run({.scale = scale * (1 + offset), .seed = seed + i}));
  }
  return runs;
}

}  // namespace rooflm::report
