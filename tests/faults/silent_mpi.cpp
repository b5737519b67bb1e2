// An Open MPI whose start never ends, as one that waits for the server of another MPI.
#include <unistd.h>

#include <array>

// MPI's names. NOLINTBEGIN(readability-identifier-naming, cppcoreguidelines-avoid-non-const-global-variables)
extern "C" {
std::array<char, 64> ompi_mpi_comm_world, ompi_mpi_byte;
int MPI_Init_thread() {
  while (true) ::pause();
}
int MPI_Finalize() { return 1; }
int MPI_Abort() { return 1; }
int MPI_Comm_rank() { return 1; }
int MPI_Comm_size() { return 1; }
int MPI_Isend() { return 1; }
int MPI_Irecv() { return 1; }
int MPI_Test() { return 1; }
}
// NOLINTEND(readability-identifier-naming, cppcoreguidelines-avoid-non-const-global-variables)
