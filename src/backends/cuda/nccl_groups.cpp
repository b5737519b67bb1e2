// The groups of ranks that a GPU shares work with, and their collectives through NCCL.
#include "backends/cuda/nccl_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>
#include <stdexcept>
#include <utility>

#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

using program::Group;
using program::Part;

nccl::DataType type_of(core::DType dtype) {
  switch (dtype) {
    case core::DType::f64:
      return nccl::kFloat64;
    case core::DType::f32:
      return nccl::kFloat32;
    case core::DType::bf16:
      return nccl::kBfloat16;
    case core::DType::f16:
      return nccl::kFloat16;
    default:
      throw core::Unavailable(fmt::format("NCCL adds up no {}", core::name_of(dtype)));
  }
}

std::size_t bytes_of(const DeviceTransfer& t, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * core::size_of(t.dtype);
}

Part part_of(const DeviceTransfer& t, int ranks, int index) {
  return program::part_of(t.elements, ranks, index, t.unit);
}

/// Whether all ranks have as many elements, as NCCL's own splitting wants it.
bool is_even(const DeviceTransfer& t, int ranks) {
  return t.elements % ranks == 0 && part_of(t, ranks, 0).size() == t.elements / ranks;
}

const std::byte* at(const DeviceTransfer& t, const void* from, std::int64_t element) {
  return static_cast<const std::byte*>(from) + bytes_of(t, element);
}

std::size_t count_of(std::int64_t elements) { return static_cast<std::size_t>(elements); }

/// Several calls that NCCL runs as one.
class Grouped {
 public:
  explicit Grouped(const NcclLibrary& library) : library_(&library) {
    library_->check(library_->group_start(), "beginning a group");
  }
  Grouped(const Grouped&) = delete;
  Grouped& operator=(const Grouped&) = delete;
  ~Grouped() {
    if (!has_ended_) static_cast<void>(library_->group_end());
  }
  void end(std::string_view what) {
    has_ended_ = true;
    library_->check(library_->group_end(), what);
  }

 private:
  const NcclLibrary* library_;
  bool has_ended_ = false;
};

}  // namespace

std::shared_ptr<NcclGroups> NcclGroups::join(const std::shared_ptr<Context>& context,
                                             std::shared_ptr<ranks::Transport> transport,
                                             const program::Mesh& mesh) {
  std::shared_ptr<NcclGroups> groups(new NcclGroups(context, std::move(transport), mesh));
  context->set_watch([weak = groups->weak_from_this()](double waited_s) {
    if (const auto self = weak.lock()) self->watch(waited_s);
  });
  return groups;
}

NcclGroups::NcclGroups(std::shared_ptr<Context> context, std::shared_ptr<ranks::Transport> transport,
                       const program::Mesh& mesh)
    : library_(&nccl_library()), context_(std::move(context)), transport_(std::move(transport)) {
  context_->select();
  for (const Group group : {Group::tensor, Group::data, Group::pipeline, Group::tied}) connect(group, mesh);
}

NcclGroups::~NcclGroups() {
  if (std::uncaught_exceptions() > 0) abort();
  for (Member& member : members_) {
    if (member.comm != nullptr) static_cast<void>(library_->comm_destroy(member.comm));
  }
}

/// The first rank of a group makes its name, the others get it by message.
void NcclGroups::connect(Group group, const program::Mesh& mesh) {
  const std::vector<int> ranks = mesh.members(transport_->rank(), group);
  if (ranks.size() < 2) return;
  Member& member = members_.at(static_cast<std::size_t>(group));
  member.ranks = static_cast<int>(ranks.size());
  member.index = static_cast<int>(std::ranges::find(ranks, transport_->rank()) - ranks.begin());
  nccl::UniqueId id{};
  if (member.index == 0) {
    library_->check(library_->get_unique_id(&id), "naming a group of ranks");
    for (std::size_t i = 1; i < ranks.size(); ++i)
      transport_->send(ranks[i], ranks::kShared, std::as_bytes(std::span(&id, 1)));
  } else {
    const ranks::Incoming incoming{ranks.front(), std::as_writable_bytes(std::span(&id, 1))};
    transport_->exchange(ranks::kShared, {}, {&incoming, 1});
  }
  library_->check(library_->comm_init_rank(&member.comm, member.ranks, id, member.index),
                  fmt::format("joining the group '{}' of {} ranks", program::name_of(group), member.ranks));
}

/// Kernels of NCCL wait for other ranks for ever: aborted, they end.
void NcclGroups::abort() {
  for (Member& member : members_) {
    if (member.comm != nullptr) static_cast<void>(library_->comm_abort(std::exchange(member.comm, nullptr)));
  }
}

void NcclGroups::watch(double waited_s) {
  try {
    transport_->look();
    for (const Member& member : members_) {
      if (member.comm == nullptr) continue;
      nccl::Result result = nccl::kSuccess;
      library_->check(library_->comm_get_async_error(member.comm, &result), "asking for errors");
      if (result != nccl::kInProgress) library_->check(result, "running a collective");
    }
    std::vector<int> others;
    for (int rank = 0; rank < transport_->size(); ++rank) {
      if (rank != transport_->rank()) others.push_back(rank);
    }
    transport_->require_patience(waited_s, others);
  } catch (...) {
    abort();
    throw;
  }
}

void NcclGroups::all_reduce(Group group, const std::vector<DeviceTransfer>& whole,
                            cudaStream_t stream) const {
  const Member& own = member(group);
  Grouped calls(*library_);
  for (const DeviceTransfer& t : whole) {
    library_->check(library_->all_reduce(t.from, t.to, count_of(t.elements), type_of(t.dtype), nccl::kSum,
                                         own.comm, stream),
                    "all_reduce");
  }
  calls.end("all_reduce");
}

void NcclGroups::all_gather(Group group, const std::vector<DeviceTransfer>& whole,
                            cudaStream_t stream) const {
  const Member& own = member(group);
  Grouped calls(*library_);
  for (const DeviceTransfer& t : whole) {
    if (is_even(t, own.ranks)) {
      library_->check(library_->all_gather(t.from, t.to, count_of(t.elements / own.ranks), type_of(t.dtype),
                                           own.comm, stream),
                      "all_gather");
      continue;
    }
    for (int root = 0; root < own.ranks; ++root) {
      const Part part = part_of(t, own.ranks, root);
      if (part.size() == 0) continue;
      auto* to = static_cast<std::byte*>(t.to) + bytes_of(t, part.begin);
      const void* from = root == own.index ? t.from : to;
      library_->check(
          library_->broadcast(from, to, count_of(part.size()), type_of(t.dtype), root, own.comm, stream),
          "all_gather");
    }
  }
  calls.end("all_gather");
}

void NcclGroups::reduce_scatter(Group group, const std::vector<DeviceTransfer>& whole,
                                cudaStream_t stream) const {
  const Member& own = member(group);
  Grouped calls(*library_);
  for (const DeviceTransfer& t : whole) {
    if (is_even(t, own.ranks)) {
      library_->check(library_->reduce_scatter(t.from, t.to, count_of(t.elements / own.ranks),
                                               type_of(t.dtype), nccl::kSum, own.comm, stream),
                      "reduce_scatter");
      continue;
    }
    for (int root = 0; root < own.ranks; ++root) {
      const Part part = part_of(t, own.ranks, root);
      if (part.size() == 0) continue;
      library_->check(library_->reduce(at(t, t.from, part.begin), t.to, count_of(part.size()),
                                       type_of(t.dtype), nccl::kSum, root, own.comm, stream),
                      "reduce_scatter");
    }
  }
  calls.end("reduce_scatter");
}

}  // namespace rooflm::backends::cuda
