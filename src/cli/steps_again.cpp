// Steps of programs that were recorded or imported, found again for a report.
#include "cli/steps_again.h"

#include <array>
#include <utility>

#include "cli/command_record.h"
#include "foreign/foreign_run.h"
#include "record/reader.h"
#include "report/runs/match_runs.h"

namespace rooflm::cli {

void find_steps_again(const foreign::StepsBy& by, report::RecordSet& set) {
  std::size_t at = 0;  // of set.runs, which are in the order of the files
  for (std::size_t file = 0; file < set.files.size(); ++file) {
    const record::Reader reader(set.files[file].name);
    for (const record::Run& run : reader.runs()) {
      report::RunData& known = set.runs.at(at++);
      if (!report::is_foreign(run)) continue;
      foreign::ForeignRun again = foreign::ForeignRun::read_back(reader, run);
      again.steps_by = by;
      CommandRecord record("", false, "rooflm report --steps-by", false);
      again.write(record.writer());
      record.finish();
      const std::array paths = {record.path()};
      report::RunData found = std::move(report::load(paths).runs.front());
      found.file = file;
      found.run.id = run.id;
      found.ceilings = std::move(known.ceilings);
      known = std::move(found);
    }
  }
}

}  // namespace rooflm::cli
