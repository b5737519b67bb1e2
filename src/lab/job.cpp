// The job that a command is a rank of: several processes that run one step together.
#include "lab/job.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "core/stop_signals.h"
#include "lab/devices.h"
#include "lab/notes.h"
#include "ranks/speaker.h"

namespace rooflm::lab {
namespace {

std::string line_of(const std::pair<const std::string, std::string>& value) {
  return fmt::format("{}\n{}\n", value.first, value.second);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// The first name and the two values that differ between texts of lines, in turn names and values.
std::string difference(const std::string& first, const std::string& other, const std::string& rank) {
  const std::vector<std::string> a = lines_of(first);
  const std::vector<std::string> b = lines_of(other);
  for (std::size_t i = 0; i + 1 < std::min(a.size(), b.size()); i += 2) {
    if (a[i] != b[i]) break;
    if (a[i + 1] == b[i + 1]) continue;
    return fmt::format("{} has {} = {}, rank 0 has {}", rank, a[i], core::printable(b[i + 1]),
                       core::printable(a[i + 1]));
  }
  return fmt::format("{} and rank 0 were given different options", rank);
}

}  // namespace

int run_in_job(const std::function<int(const Ranks&)>& body) {
  const ranks::Place place = ranks::find_place();
  if (!place.is_first() && talk() != Talk::verbose) set_talk(Talk::quiet);
  // A stream whose kernels wait for other ranks must not hold up another: by default eight share a queue.
  if (place.size > 1) ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const Ranks ranks = ranks::join(place);
  if (ranks == nullptr) return body(nullptr);
  try {
    const int code = body(ranks);
    ranks->leave();
    return code;
  } catch (const std::bad_alloc&) {
    ranks->abandon("out of memory");
    throw;
  } catch (const core::Stopped&) {  // in the middle of a step, maybe
    ranks->abandon("was asked to stop");
    throw;
  } catch (const ranks::RankLost& error) {
    ranks::give_up(*ranks, error);
  } catch (const std::exception& error) {
    ranks->abandon(error.what());
    throw;
  }
}

void take_place(Point& point, const Ranks& ranks) {
  const compile::Sharding& split = point.step.sharding;
  const int here = ranks == nullptr ? 1 : ranks->size();
  if (split.ranks() != here && runs(point.device)) {
    throw core::UsageError(fmt::format(
        "--dp {} x --cp {} x --tp {} x --pp {} is {} ranks, this job has {}: rooflm launch -n {} -- "
        "... starts them on this host",
        split.data, split.context, split.tensor, split.pipeline, split.ranks(), here, split.ranks()));
  }
  if (ranks == nullptr) return;
  // Each rank would find scales of its own, and nobody has held such a run to one rank yet.
  if (point.step.fp8 && runs(point.device))
    throw core::UsageError(
        "--dtype fp8 runs on one rank only: choose bf16, or leave out --dp, --cp, --tp and --pp");
  point.step.rank = split.mesh().coordinates_of(ranks->rank());
  share_threads(point, ranks);
}

void share_threads(Point& point, const Ranks& ranks) {
  if (ranks == nullptr || point.threads != 0) return;
  const int share = std::max(1, resolve_threads(0) / std::max(1, ranks->ranks_here()));
  if (is_host(point.device)) {
    point.threads = share;
  } else {
    omp_set_num_threads(share);  // what the host does, such as making weights
  }
}

void require_one_rank(const std::vector<Point>& points) {
  for (const Point& point : points) {
    if (point.step.sharding.ranks() > 1 && runs(point.device))
      throw core::UsageError(
          "a step is split over ranks in bench, profile and train only: leave out --dp, --cp, --tp and --pp");
  }
}

void agree(const Ranks& ranks, const std::map<std::string, std::string>& values) {
  if (ranks == nullptr) return;
  std::string own;
  for (const auto& value : values) own += line_of(value);
  const std::vector<std::string> all = ranks::share(*ranks, own);
  for (int rank = 1; rank < ranks->size(); ++rank) {
    const std::string& other = all[static_cast<std::size_t>(rank)];
    if (other == all.front()) continue;
    throw core::UsageError(fmt::format("{}: all ranks need the same program and options",
                                       difference(all.front(), other, ranks->name_of(rank))));
  }
}

int agree_on_devices(const Ranks& ranks, const std::string& device) {
  if (ranks == nullptr || is_host(device)) return 1;
  agree(ranks, {{"ROOFLM_SHARE_GPUS", ranks->place().shares_gpus ? "1" : "0"}});
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string own =
      fmt::format("{} {} {}", device, ranks::host_name(), visible == nullptr ? "" : visible);
  const std::vector<std::string> all = ranks::share(*ranks, own);
  const auto sharers = static_cast<int>(std::ranges::count(all, own));
  if (ranks->place().shares_gpus) {
    if (sharers > 1) note("{}", sharing_sentence(sharers, device));
    return sharers;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (all[i] != all[k]) continue;
      throw core::UsageError(
          fmt::format("{} and {} would share {}: each rank needs a device of its own (--device cuda takes "
                      "that of its number); launch --share-gpus lets them take turns, to try things out",
                      ranks->name_of(static_cast<int>(k)), ranks->name_of(static_cast<int>(i)), device));
    }
  }
  return 1;
}

std::string sharing_sentence(int sharers, const std::string& device) {
  return fmt::format("{} ranks take turns on {}: results are correct, times are meaningless", sharers,
                     device);
}

std::map<std::string, std::string> values_of(const Point& point) {
  std::map<std::string, std::string> values{{"version", ROOFLM_VERSION}};
  const record::Config config = config_of(point);
  for (const record::Field& field : record::config_fields()) {
    if (field.key == "device" || field.key == "threads") continue;
    const std::string name(field.option.empty() ? field.key : field.option);
    values[name] = config.text(field.key);
  }
  values["kind of device"] = point.device.substr(0, point.device.find(':'));
  return values;
}

void join_backend(backends::Backend& backend, const Point& point, const Ranks& ranks) {
  if (ranks == nullptr) return;
  const ranks::Patience patience(ranks.get());
  backends::provider_of(point.device).join(backend, ranks, point.step.sharding.mesh(), point.collectives.way);
  if (ranks->is_first() && !backend.remark_on_ways().empty()) note("  {}", backend.remark_on_ways());
}

}  // namespace rooflm::lab
