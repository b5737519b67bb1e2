// What names and facts of a record say to exports: numbers of devices, places of ranks, ways of copies.
#include <algorithm>
#include <charconv>

#include "report/export/trace.h"
#include "report/model/activity_names.h"
#include "report/model/kernels.h"

namespace rooflm::report {

std::int64_t device_number(std::string_view device) {
  const auto colon = device.rfind(':');
  std::int64_t number = 0;
  if (colon != std::string_view::npos) {
    std::from_chars(device.data() + colon + 1, device.data() + device.size(), number);
  }
  return std::clamp<std::int64_t>(number, 0, kMostDevices - 1);
}

bool is_gpu(std::string_view device) { return !device.empty() && device != "cpu"; }

std::int64_t DeviceNumbers::of(std::string_view device, int rank) {
  const auto [entry, is_new] = numbers_.try_emplace({rank, std::string(device)}, device_number(device));
  if (!is_new) return entry->second;
  while (!taken_.insert(entry->second).second) ++entry->second;
  return entry->second;
}

std::optional<std::int64_t> number_in(std::string_view extra, std::string_view key) {
  const auto at = extra.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = extra.substr(at + key.size());
  std::int64_t number = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return parsed.ec == std::errc() ? std::optional(number) : std::nullopt;
}

std::int64_t multiprocessors_of(const RunData& run, const std::string& device) {
  const auto own = run.number("multiprocessors " + device);
  constexpr double kMost = 1e6;
  return static_cast<std::int64_t>(
      std::clamp(own ? *own : run.number("multiprocessors").value_or(0), 0.0, kMost));
}

RankPlace rank_place_of(const RunData& run) {
  const auto rank = run.number("rank");
  const auto ranks = run.number("world_size");
  constexpr double kMost = 1e6;
  if (rank && ranks && *rank >= 0 && *rank < *ranks && *ranks < kMost)
    return {static_cast<std::int64_t>(*rank), static_cast<std::int64_t>(*ranks)};
  RankPlace place;
  const ActivityNames names(run);
  for (const record::Activity& activity : run.activities) {
    if (names.kind(activity) != "communication") continue;
    const RankPlace known{number_in(activity.extra, R"("rank":)").value_or(-1),
                          number_in(activity.extra, R"("ranks":)").value_or(0)};
    if (known.rank >= 0 && known.rank < known.ranks && known.ranks > place.ranks) place = known;
  }
  return place;
}

std::optional<std::int64_t> address_of(const TraceEvent& event) {
  return number_in(event.extra, "\"address\":");
}

int sync_kind(std::string_view name) {
  constexpr std::pair<std::string_view, int> kWords[] = {
      {"tream waits", 2}, {"Stream Wait", 2}, {"event", 1},  {"Event", 1},  {"stream", 3},
      {"Stream", 3},      {"device", 4},      {"Device", 4}, {"Context", 4}};
  for (const auto& [word, kind] : kWords) {
    if (name.find(word) != std::string_view::npos) return kind;
  }
  return 0;
}

int copy_kind(std::string_view name) {
  constexpr std::pair<std::string_view, int> kWords[] = {{"host to device", 1}, {"HtoD", 1},
                                                         {"Host-to-Device", 1}, {"device to host", 2},
                                                         {"DtoH", 2},           {"Device-to-Host", 2},
                                                         {"peer", 10},          {"PtoP", 10},
                                                         {"Peer", 10},          {"device to device", 8},
                                                         {"DtoD", 8},           {"Device-to-Device", 8},
                                                         {"host to host", 9},   {"HtoH", 9},
                                                         {"Host-to-Host", 9}};
  for (const auto& [word, kind] : kWords) {
    if (name.find(word) != std::string_view::npos) return kind;
  }
  return 0;
}

}  // namespace rooflm::report
