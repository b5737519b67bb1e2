// rooflm verify: holds run records against themselves.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/table.h"
#include "core/error.h"
#include "core/units.h"
#include "record/reader.h"
#include "report/tables/typed_columns.h"
#include "report/verify/verify.h"

namespace rooflm::cli {
namespace {

struct VerifyOptions {
  std::vector<std::string> files;
  bool all = false;
  TableOptions table;
};

/// A law, held against a record.
struct Verified : report::LawResult {
  std::string file{};
};

const report::TypedColumns<Verified>& verify_columns() {
  const auto if_violated = [](auto member) {
    return
        [member](const Verified& of) { return of.violated > 0 ? std::optional(of.*member) : std::nullopt; };
  };
  static const report::TypedColumns<Verified> columns = {
      {"file", "file", &Verified::file},
      {"run", "run", &Verified::label},
      {"law", "law", &Verified::law},
      {"violated", "violated", &Verified::violated},
      {"checked", "checked", &Verified::checked},
      {"not_judged", &Verified::not_judged},
      {"what", "worst case", if_violated(&Verified::what)},
      {"found", "found", if_violated(&Verified::found)},
      {"against", "against", if_violated(&Verified::bound)},
      {"unit", "unit", if_violated(&Verified::unit)}};
  return columns;
}

/// "; not judged 84 times: no time beats its roof (measured under load: ...)" for each law that had no limit.
std::string unjudged(const std::vector<report::LawResult>& results) {
  std::map<std::string, report::LawResult> sums;
  for (const report::LawResult& result : results) {
    if (result.not_judged == 0) continue;
    report::LawResult& sum = sums[result.law];
    sum.not_judged += result.not_judged;
    sum.why_not = result.why_not;
  }
  std::string text;
  for (const auto& [law, sum] : sums) {
    text +=
        fmt::format("; not judged {}: {} ({})", core::format_count(sum.not_judged, "time"), law, sum.why_not);
  }
  return text;
}

/// "a.rooflm holds: 24 laws, 1234 checks in 2 runs".
std::string verdict(const record::Reader& record, const std::vector<report::LawResult>& results) {
  std::size_t checks = 0;
  std::size_t violated = 0;
  for (const report::LawResult& result : results) {
    checks += result.checked;
    violated += result.violated > 0 ? 1 : 0;
  }
  const std::string what =
      violated == 0 ? fmt::format("holds: {}", core::format_count(results.size(), "law"))
                    : fmt::format("does not hold: {} of {} laws are violated", violated, results.size());
  const std::string partial = record.is_complete() ? "" : "; it is partial: its run did not finish";
  return fmt::format("{} {}, {} in {}{}{}", record.path().string(), what, core::format_count(checks, "check"),
                     core::format_count(record.runs().size(), "run"), partial, unjudged(results));
}

int run(const VerifyOptions& options) {
  const TableStyle style = options.table.style();
  require_columns(report::columns_of(verify_columns()), style);
  if (options.files.empty())
    throw core::UsageError("verify: name one or more records: rooflm verify FILE...");
  std::vector<Verified> rows;
  bool holds = true;
  std::vector<std::string> verdicts;
  for (const std::string& file : options.files) {
    const record::Reader record(file);
    const auto results = report::verify(record);
    for (const report::LawResult& result : results) {
      if (options.all || result.violated > 0) rows.push_back({result, file});
    }
    holds = holds && report::all_hold(results);
    verdicts.push_back(verdict(record, results));
  }
  const bool for_people = style.format == Format::table || style.format == Format::md;
  if (!for_people || !rows.empty()) write_out(show_table(verify_columns().table(rows), style));
  for (const std::string& line : verdicts) {
    if (for_people) {
      write_text(line + "\n");
    } else {
      note("{}", line);
    }
  }
  return static_cast<int>(holds ? core::ExitCode::done : core::ExitCode::check_failed);
}

}  // namespace

Body declare_verify(CommandLine& line) {
  auto options = std::make_shared<VerifyOptions>();
  line.add_option("file", options->files, "Run records").type_name("FILE").required();
  line.add_flag("--all", options->all, "Also show laws that hold");
  options->table.add_to(line, "Output format; JSON and CSV have all numbers at full precision");
  line.footer(
      "Laws: phases add up to the step and ops to their phase; FLOP match the model;\n"
      "allocations balance; every op ran once per observed step; no time beats its roof\n"
      "by more than 5 % + 2 us; ceilings are positive. Each violated law is one line\n"
      "with its worst case. Exit code 1 if a law is violated.\n\n"
      "Example: rooflm verify run.rooflm");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
