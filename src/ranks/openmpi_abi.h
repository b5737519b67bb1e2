// What rooflm calls of Open MPI, which it opens when it runs: the types, constants and signatures of its
// mpi.h (versions 3 to 5, libmpi.so.40; https://github.com/open-mpi/ompi, ompi/include/mpi.h.in), whose
// handles are pointers to objects that the library exports. MPICH's are other.
#pragma once

#include <cstddef>

namespace rooflm::ranks::openmpi {

using Comm = void*;      ///< MPI_Comm; ompi_mpi_comm_world
using Datatype = void*;  ///< MPI_Datatype; ompi_mpi_byte
using Request = void*;   ///< MPI_Request
using Status = void;     ///< MPI_Status; null ignores it

inline constexpr int kSuccess = 0;           ///< MPI_SUCCESS
inline constexpr int kThreadSerialized = 2;  ///< MPI_THREAD_SERIALIZED
inline constexpr const char* kFile = "libmpi.so.40";

struct Functions {
  int (*init_thread)(int* argc, char*** argv, int required, int* provided);
  int (*finalize)();
  int (*abort)(Comm, int code);
  int (*rank)(Comm, int* rank);
  int (*size)(Comm, int* size);
  int (*isend)(const void*, int count, Datatype, int to, int tag, Comm, Request*);
  int (*irecv)(void*, int count, Datatype, int from, int tag, Comm, Request*);
  int (*test)(Request*, int* is_done, Status*);
  Comm world;
  Datatype byte;
};

}  // namespace rooflm::ranks::openmpi
