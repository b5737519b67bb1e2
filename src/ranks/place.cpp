// Which of the processes of a job this one is, from what started it.
#include "ranks/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "core/error.h"

namespace rooflm::ranks {
namespace {

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <class Number>
Number number_of(const char* name, Number least, Number otherwise) {
  const std::string text = text_of(name);
  if (text.empty()) return otherwise;
  Number value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec == std::errc() && result.ptr == end && value >= least) return value;
  throw core::UsageError(
      fmt::format("{}={} in the environment: expected a number of at least {}", name, text, least));
}

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

/// The variables in which a starter says who a process is.
struct Names {
  const char *rank, *size, *local_rank, *local_size;
};

Place place_by(const Names& names) {
  Place place;
  place.size = number_of(names.size, 1, 1);
  place.rank = number_of(names.rank, 0, 0);
  place.local_rank = number_of(names.local_rank, 0, place.rank);
  place.local_size = number_of(names.local_size, 1, place.size);
  if (place.rank >= place.size) {
    throw core::UsageError(fmt::format("{}={} and {}={} in the environment: ranks count from 0", names.rank,
                                       place.rank, names.size, place.size));
  }
  return place;
}

/// What all ranks of a job know. The names that starters give keep jobs apart, but can be guessed.
std::string job_key() {
  if (is_set("ROOFLM_JOB")) return text_of("ROOFLM_JOB");
  if (is_set("TORCHELASTIC_RUN_ID")) return "torchrun " + text_of("TORCHELASTIC_RUN_ID");
  if (is_set("SLURM_JOB_ID"))
    return fmt::format("slurm {}.{}", text_of("SLURM_JOB_ID"), text_of("SLURM_STEP_ID"));
  if (is_set("PMIX_NAMESPACE")) return "pmix " + text_of("PMIX_NAMESPACE");
  return {};
}

void use_sockets(Place& place) {
  constexpr int kDefaultPort = 29500;  // torchrun's
  place.carrier = Carrier::sockets;
  place.address = text_of("MASTER_ADDR");
  if (place.address.empty()) place.address = "127.0.0.1";
  place.port = number_of("MASTER_PORT", 1, kDefaultPort);
  if (place.port > std::numeric_limits<std::uint16_t>::max()) {
    throw core::UsageError(fmt::format("MASTER_PORT={} in the environment is not a port", place.port));
  }
  place.job = job_key();
  if (place.job.empty() && place.size > 1) {
    throw core::UsageError(
        fmt::format("rank {} of {} has no key that keeps strangers out of the job: set ROOFLM_JOB to the "
                    "same random text for "
                    "all ranks, such as that of `openssl rand -hex 16` (docs/clusters.md)",
                    place.rank, place.size));
  }
  place.is_launched = is_set("ROOFLM_LAUNCHED");
  if (place.rank == 0) place.listener = number_of("ROOFLM_LISTENER", 3, -1);
}

/// What srun gives to the ranks of a step. The script of a batch job has none, and an interactive shell is a
/// step of one task, whatever the job has: both are alone.
constexpr const char* kNodesOfStep = "SLURM_STEP_NODELIST";
bool is_of_step() {
  return is_set(kNodesOfStep) && text_of("SLURM_STEP_NUM_TASKS") == text_of("SLURM_NTASKS");
}

/// srun says where the first rank is; all of a job's steps have the same port, those of other jobs others.
void use_nodes(Place& place) {
  constexpr int kFirstPort = 20000;
  constexpr int kPorts = 10000;  // below those that systems hand out
  if (!is_set("MASTER_ADDR")) place.address = first_host(text_of(kNodesOfStep));
  if (!is_set("MASTER_PORT")) place.port = kFirstPort + number_of("SLURM_JOB_ID", 0, 0) % kPorts;
}

}  // namespace

std::string first_host(std::string_view list) {
  const std::size_t open = list.find_first_of("[,");
  if (open == std::string_view::npos || list[open] == ',') return std::string(list.substr(0, open));
  const std::size_t close = list.find(']', open);
  const std::size_t end = std::min(list.find_first_of("-,]", open), list.size());
  std::string host(list.substr(0, open));
  host += list.substr(open + 1, end - open - 1);
  // What follows the brackets, as in "rack[1-2]node[07-09]".
  if (close != std::string_view::npos) host += first_host(list.substr(close + 1));
  return host;
}

Place find_place() {
  constexpr Names kMpirun{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                          "OMPI_COMM_WORLD_LOCAL_SIZE"};
  constexpr Names kTorchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  constexpr Names kSrun{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"};
  constexpr Names kMpiexec{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
  Place place;
  if (is_set(kMpirun.rank) && is_set(kMpirun.size)) {
    place = place_by(kMpirun);
    place.carrier = Carrier::mpi;
  } else if (is_set(kTorchrun.rank) && is_set(kTorchrun.size)) {
    place = place_by(kTorchrun);
    use_sockets(place);
  } else if (is_set(kSrun.rank) && is_set(kSrun.size) && (is_set("MASTER_ADDR") || is_of_step())) {
    place = place_by(kSrun);
    use_sockets(place);
    use_nodes(place);
  } else if (is_set(kMpiexec.rank) && is_set(kMpiexec.size)) {
    place = place_by(kMpiexec);
    if (place.size > 1 && !is_set("MASTER_ADDR"))
      throw core::UsageError(
          "PMI_SIZE in the environment says that there are other ranks (MPICH's mpiexec?): set MASTER_ADDR "
          "to the host of the first one, and MASTER_PORT to a port that is free there");
    use_sockets(place);
  }
  if (place.size == 1) place.carrier = Carrier::nobody;
  place.patience_s = number_of("ROOFLM_TIMEOUT", 0.1, Place::kPatienceSeconds);
  place.start_patience_s = number_of("ROOFLM_TIMEOUT", 0.1, Place::kStartSeconds);
  place.shares_gpus = number_of("ROOFLM_SHARE_GPUS", 0, 0) > 0;
  return place;
}

}  // namespace rooflm::ranks
