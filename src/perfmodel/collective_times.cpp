// What ops between ranks move, and how long it takes.
#include <algorithm>

#include "compile/planned/async_tensor.h"
#include "perfmodel/role.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::perfmodel {

using program::Op;
using program::Program;

namespace {

Collective kind_of(const Op& op) {
  namespace ops = program::ops;
  if (op.is(ops::kAllReduce) || op.is(ops::kBarrier)) return Collective::all_reduce;
  if (op.is(ops::kExchangeRows) || op.is(ops::kReturnRows)) return Collective::all_to_all;
  if (op.is(ops::kAllGather)) return Collective::all_gather;
  if (op.is(ops::kReduceScatter)) return Collective::reduce_scatter;
  if (op.is(ops::kPassOn)) return Collective::pass_on;
  return Collective::point_to_point;
}

}  // namespace

OpTime collective_time(const Program& program, const Op& op, const compile::Sharding& sharding,
                       const Setting& setting) {
  const Cluster& cluster = setting.cluster;
  OpTime time{.spread = cluster.spread, .basis = cluster.basis};
  if (op.is(program::ops::kSend)) return time;
  const Collective kind = kind_of(op);
  const Ranks ranks = ranks_of(program::group_of(op), sharding);
  // Between nodes nothing of it was measured: it depends on who routes, and on what is sent once for several.
  if (kind == Collective::all_to_all && link_of(cluster, ranks).name == cluster.between.name)
    time.spread = std::max(time.spread, 2 * kUnmeasuredSpread);
  double bytes = static_cast<double>(moved_bytes(program, op));
  if (kind == Collective::all_to_all && setting.framework.sends_rows_once && op.attrs.has("active"))
    bytes *= share_sent_once(cluster, ranks, static_cast<double>(op.attrs.integer("active")));
  const bool is_scattered = setting.framework.scatters_sends && kind == Collective::point_to_point &&
                            sharding.tensor > 1 && !sharding.sequence_parallel;
  if (is_scattered) {
    time.seconds = collective_seconds(cluster, Collective::all_gather, bytes,
                                      ranks_of(program::Group::tensor, sharding));
    bytes /= sharding.tensor;
  }
  time.seconds += collective_seconds(cluster, kind, bytes, ranks);
  return time;
}

double sent_bytes(const Program& program, const Op& op, const compile::Sharding& sharding) {
  if (!moves_between_ranks(op) || op.is(program::ops::kReceive)) return 0;
  const int ranks = ranks_of(program::group_of(op), sharding).size;
  return sent_share(kind_of(op), ranks) * static_cast<double>(moved_bytes(program, op));
}

bool moves_between_ranks(const Op& op) { return program::is_collective(op) || passes::is_row_copy(op); }

std::int64_t moved_bytes(const Program& program, const Op& op) {
  return passes::is_row_copy(op) ? op.attrs.integer("bytes") : program::payload_bytes(program, op);
}

const LinkLevel& link_of(const Op& op, const PlanPoint& point, const Cluster& cluster) {
  return link_of(cluster, ranks_of(program::group_of(op), point.step.sharding));
}

}  // namespace rooflm::perfmodel
