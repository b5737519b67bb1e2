// Links as `rooflm comm` measured them, for plans.
#include "perfmodel/link_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "core/error.h"
#include "core/printable.h"

namespace rooflm::perfmodel {
namespace {

struct CommRow {
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
};

std::map<std::int64_t, CommRow> rows_of(const record::Reader& record) {
  std::map<std::int64_t, CommRow> rows;
  for (const record::Cell& cell : record.cells()) {
    if (cell.series != "comm") continue;
    if (cell.value) rows[cell.row].numbers[cell.col] = *cell.value;
    if (!cell.value) rows[cell.row].texts[cell.col] = cell.text;
  }
  return rows;
}

}  // namespace

std::optional<std::vector<std::string>> take_links(const record::Reader& record, Cluster& cluster) {
  constexpr std::array kKinds = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter};
  cluster.pair.reset();  // what was measured has bridges in it
  LinkLevel& link = cluster.inside;
  // By ranks and the bytes that each sends.
  std::map<int, std::map<Collective, std::map<double, double>>> seconds;
  std::set<std::string> carriers;
  for (const auto& [number, row] : rows_of(record)) {
    const auto kind =
        std::ranges::find(kKinds, row.texts.at("op"), [](Collective each) { return name_of(each); });
    if (kind == kKinds.end() || row.texts.at("status") != "success" || row.texts.at("place") != "out")
      continue;
    if (row.numbers.at("hosts") > 1) {
      throw core::InputError(
          fmt::format("--calibrate: row {} of comm spans {:.0f} hosts; only links within a host are used",
                      number, row.numbers.at("hosts")));
    }
    const double time_s = row.numbers.at("time_us") * 1e-6;
    if (const auto carrier = row.texts.find("carrier"); carrier != row.texts.end())
      carriers.insert(carrier->second);
    const int ranks = static_cast<int>(row.numbers.at("ranks"));
    seconds[ranks][*kind].emplace(row.numbers.at("busbw") * time_s, time_s);
  }
  if (seconds.empty()) return std::nullopt;
  if (link.byte_per_s <= 0)
    throw core::InputError("--calibrate: the catalog knows no link of this device, which comm measured");
  for (const auto& [ranks, kinds] : seconds) {
    for (const auto& [kind, points] : kinds)
      for (MeasuredRing& known : link.measured) known.seconds.erase(kind);
  }
  for (const auto& [ranks, kinds] : seconds) {
    MeasuredRing& ring = link.measured.emplace_back(MeasuredRing{.ranks = ranks});
    for (const auto& [kind, points] : kinds) {
      Curve& curve = ring.seconds[kind];
      for (const auto& [bytes, time_s] : points)
        curve.emplace_back(bytes, curve.empty() ? time_s : std::max(time_s, curve.back().second));
    }
  }
  std::ranges::stable_sort(link.measured, {}, &MeasuredRing::ranks);
  std::vector<std::string> notes;
  for (const std::string& carrier : carriers) {
    if (!carrier.starts_with("NCCL") && link.name.starts_with("NVLink"))
      notes.push_back(
          fmt::format("collectives measured over {}, planned for {}", core::printable(carrier), link.name));
  }
  link.measured_byte_per_s = link.byte_per_s;
  cluster.basis = Basis::calibrated;
  cluster.source = "collectives as measured in the record of --calibrate";
  return notes;
}

}  // namespace rooflm::perfmodel
