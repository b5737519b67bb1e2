// Which of the processes of a job this one is, from what started it.
#pragma once

#include <string>
#include <string_view>

namespace rooflm::ranks {

/// Who passes messages between ranks.
enum class Carrier { nobody, sockets, mpi };

/// One process of a job. Alone: rank 0 of 1.
struct Place {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  ///< among those of its host
  Carrier carrier = Carrier::nobody;
  // Of sockets:
  std::string address;  ///< of rank 0, a name or a number
  int port = 0;         ///< where it listens
  int listener = -1;    ///< rank 0: the descriptor that listens there already, or -1
  std::string job;      ///< the key of the job: what all its ranks know, so that no other is taken for one
  bool is_launched = false;                 ///< by `rooflm launch`, which passes signals on
  double patience_s = kPatienceSeconds;     ///< how long a rank waits for another within a step
  double start_patience_s = kStartSeconds;  ///< and until all are there
  bool shares_gpus = false;                 ///< ranks of a host may have the same GPU

  static constexpr double kPatienceSeconds = 20, kStartSeconds = 60;
  [[nodiscard]] bool is_first() const { return rank == 0; }
};

/// From the environment: OMPI_COMM_WORLD_* of mpirun (messages go through MPI); RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT of `rooflm launch` and torchrun; SLURM_* of srun, whose list
/// of nodes says where the first rank is unless MASTER_ADDR does; PMI_* of MPICH's mpiexec with MASTER_ADDR.
/// The job's key is ROOFLM_JOB, or the name that the starter gave to the job: Slurm's numbers of job and
/// step, TORCHELASTIC_RUN_ID or PMIX_NAMESPACE; a job over sockets without any of them is refused.
/// ROOFLM_TIMEOUT is how long a rank waits, ROOFLM_SHARE_GPUS=1 lets ranks share a GPU. Throws
/// core::UsageError for values that cannot be.
Place find_place();

/// "node03" of Slurm's "node[03-05,9],login1".
std::string first_host(std::string_view list);

}  // namespace rooflm::ranks
