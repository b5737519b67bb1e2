// The provider of this machine's CPU.
#include "backends/provider.h"

#include <fmt/format.h>

#include "backends/comm/host_communicator.h"
#include "backends/comm/kernels.h"
#include "backends/comm/summing_update.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/levels.h"
#include "core/error.h"
#include "ranks/mpi_transport.h"

namespace rooflm::backends {
namespace {

class CpuProvider final : public Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  [[nodiscard]] std::string parse(std::string_view rest) const override {
    if (rest.empty()) return "cpu";
    throw core::UsageError("--device cpu:" + std::string(rest) + ": there is one processor, cpu");
  }
  [[nodiscard]] devices::Device describe(const std::string& /*device*/) const override {
    return devices::device_of_kind(devices::Kind::cpu);
  }
  [[nodiscard]] std::unique_ptr<Backend> make(const std::string& /*device*/,
                                              const MakeOptions& options) const override {
    return make_cpu_backend(options.fast ? CpuKernels::fast : CpuKernels::reference, options.threads);
  }
  void join(Backend& backend, const std::shared_ptr<ranks::Transport>& transport, const program::Mesh& mesh,
            CollectiveWish wish) const override {
    const CollectiveWay way = wish.value_or(CollectiveWay::usual);
    if (way != CollectiveWay::usual && way != CollectiveWay::peer_memory) {
      throw core::UsageError(
          fmt::format("--collectives {} is for GPUs: on processors messages are copies", name_of(wish)));
    }
    const auto communicator = comm::make_host_communicator(transport, mesh);
    backend.add_kernels(comm::kernels_of(communicator));
    if (way != CollectiveWay::peer_memory) return;
    backend.prefer_kernels(comm::summing_updates(communicator, backend));
    backend.offer_collective_ways({CollectiveWay::usual, way}, [](CollectiveWay) {});
  }
  [[nodiscard]] std::string collectives() const override {
    const std::string missing = ranks::missing_mpi();
    return "sockets" + (missing.empty() ? ", under mpirun Open MPI" : "; under mpirun nothing: " + missing);
  }
  [[nodiscard]] FoundDevice find_usable(int /*first*/) const override { return {.name = "cpu"}; }
  [[nodiscard]] int count() const override { return 1; }
  [[nodiscard]] std::vector<std::string> offered_dtypes(bool /*anywhere*/) const override {
    return devices::device_of_kind(devices::Kind::cpu).dtypes;
  }
  [[nodiscard]] bool is_host() const override { return true; }
  [[nodiscard]] Lines environment(bool /*opens*/) const override {
    return {{"kernels of cpu", std::string(cpu::level().name)}};
  }
};

}  // namespace

const Provider& cpu_provider() {
  static const CpuProvider provider;
  return provider;
}

}  // namespace rooflm::backends
