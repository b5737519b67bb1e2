// Fuzz target: study files.
#include <span>

#include "cli/shipped_studies.h"
#include "cli/study_file.h"
#include "tests/fuzz/scratch.h"

namespace rooflm::cli {
/// The studies in the binary are not part of this target.
std::span<const ShippedStudy> shipped_study_files() { return {}; }
}  // namespace rooflm::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  return fuzz::attempt([&] {
    const cli::Study study = cli::parse_study(fuzz::text_of(data, size), "fuzz", "fuzz.toml");
    cli::check_views(study);
    cli::TakenOptions taken;
    for (const auto& [name, value] : study.options) taken.tables[name] = "options";
    cli::blame(study, taken, core::UsageError("unknown model 'x'"));
  });
}
