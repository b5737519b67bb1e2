// The one-pass gradient of attention (attention_backward_fused.cu): what a warp group computes.
//
// dq of a tile needs ds of both groups. It is computed with the next tile's dv and dk, by when the other
// group is long done with its ds, so that the groups do not meet in each tile. They issue their matmuls in
// turn, and one has exponentials while the other has matmuls. Across walks, too: keys have two stages. All
// that a tile's matmuls do comes in one order,
//
//   dq of the tile before, dv, dk | scores and dp of the next tile
//
// of which the exponentials of the next tile wait for the scores only. dq leaves registers for global memory.
#pragma once

#include "backends/cuda/kernels/attention/attention_fused_products.cuh"
#include "backends/cuda/kernels/attention/attention_fused_walk.cuh"

namespace rooflm::backends::cuda {

/// A group of four warps with 64 of the block's keys.
template <class T>
__device__ void compute_walks(const FusedGradient& g, unsigned char* shared, FusedBarriers barriers,
                              const volatile int* items) {
  constexpr int kN = T::kQueries / 8;
  constexpr int kK = T::kQueries / 16;
  constexpr int kRowParts = T::kQueries / 64;
  const int group = uniform(static_cast<int>(threadIdx.x) / kWarpGroup - 1);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Arrives for its warp, which __syncwarp has brought together since it read or wrote. The last lane,
  // because racecheck knows the last reader of an address only.
  const bool leads = lane == 31;
  const int own_key = group * kGroupRows + static_cast<int>(threadIdx.x) / 32 % 4 * 16;  // the warp's first
  const float scale2 = g.scale * kLog2E;
  const int window = T::kWindowed ? static_cast<int>(g.shape.rules.window) : 0;
  const unsigned first_scores = shared_address(shared) + T::kScoresAt +
                                (own_key + lane % 16) * kPanelRowBytes + (lane / 16 ^ lane % 8) * 16;
  // In the tile of the diagonal: the query of c[0] less its key.
  const int behind = lane % 4 * 2 - lane / 4 - own_key;
  const auto keys_at = [&](int stage) { return shared + stage * 2 * T::kKeyBytes; };
  const auto queries_at = [&](int stage) { return shared + T::kQueriesAt + stage * T::kQueryBytes; };
  const auto gradients_at = [&](int stage) { return shared + T::kGradientsAt + stage * T::kQueryBytes; };
  const auto scores_at = [&](int buffer) { return shared + T::kScoresAt + buffer * T::kScoreBytes; };
  const auto rows_at = [&](int stage) {
    return reinterpret_cast<const float*>(shared + T::kRowsAt + stage * T::kRowBytes) + lane % 4 * 2;
  };

  using Scores = Sums<1, kN>;
  const auto issue_scores = [&](Scores& scores, int key_stage, int stage) {
    begin_products();
    issue_rows_by_rows<T::kDim, kFusedKeys>(scores, keys_at(key_stage), group * kGroupRows,
                                            queries_at(stage));
    group_products();
  };
  const auto issue_dp = [&](Scores& dp, int key_stage, int stage) {
    begin_products();
    issue_rows_by_rows<T::kDim, kFusedKeys>(dp, keys_at(key_stage) + T::kKeyBytes, group * kGroupRows,
                                            gradients_at(stage));
    group_products();
  };
  const auto finish_scores = [&](Scores& scores, Scores& dp, int from_diagonal, int stage) {
    await_products<1>();
    receive(scores);
    const bool is_within = !T::kWindowed || (from_diagonal + 1) * T::kQueries <= window;
    if (from_diagonal >= T::kTilesOfKeys && is_within) {
      exponentials<false, false>(scores, rows_at(stage), scale2, 0, 0);
    } else {
      exponentials<true, T::kWindowed>(scores, rows_at(stage), scale2, behind + from_diagonal * T::kQueries,
                                       window);
    }
    await_products<0>();
    receive(dp);
  };
  const auto issue_dq = [&](Sums<1, 8>& dq, int buffer, int key_stage) {
    begin_products();
    issue_panel_by_panel<kFusedKeys>(dq, scores_at(buffer) + group % kRowParts * kPanelBytes<kFusedKeys>,
                                     keys_at(key_stage) + group / kRowParts * kPanelBytes<kFusedKeys>);
    group_products();
  };

  Waits await;
  const auto give_turn = [&] {
    if (leads) barriers.turn(group ^ 1).arrive();
  };

  // Before the first tile dq of none is computed, of whatever there is, and goes nowhere.
  if (leads) barriers.scores_full(0).arrive();
  if (group == 1) give_turn();
  int visit = 0;
  await(barriers.keys_full(0), 0);
  FusedWalk<T> walk(g, uniform(items[0]));  // a block has one at least
  await(barriers.queries_full(0), 0);
  // Variables of the loop are of the tile that it begins with; others have no value yet when matmuls begin,
  // or their old one would keep registers.
  Scores p;
  Scores dp;
  issue_scores(p, 0, 0);
  await(barriers.gradients_full(0), 0);
  issue_dp(dp, 0, 0);
  finish_scores(p, dp, walk.tile - walk.first_tile, 0);
  Sums<1, T::kDim / 8> dk{};
  Sums<1, T::kDim / 8> dv{};
  ShareOfDq<T> share;  // of the tile before, whose keys are in stage shares_keys
  int shares_keys = 0;
  int key_stage = 0;
  // ds of step s is use (s + 1) / 2 of buffer (s + 1) % 2.
  int step = 0;
  for (;; ++step) {
    const int stage = step % 2;
    const int next_stage = stage ^ 1;
    const unsigned phase = step / 2 % 2;
    const unsigned next_phase = (step + 1) / 2 % 2;
    const int buffer = next_stage;
    gradient_of_exponentials(p, dp, rows_at(stage) + T::kQueries);
    Factor<1, kK> left;
    Factor<1, kK> right;
    left.round(p);
    right.round(dp);  // ds
    await(barriers.scores_empty(buffer), next_phase ^ 1);
    store_scores(first_scores + buffer * T::kScoreBytes, right);
    publish_to_matrix_unit();
    __syncwarp();
    if (leads) barriers.scores_full(buffer).arrive();

    await(barriers.scores_full(stage), phase);  // of the step before, of both groups
    await(barriers.turn(group), step % 2);
    Sums<1, 8> dq;
    issue_dq(dq, stage, shares_keys);
    settle(left);
    receive(dv);
    begin_products();
    issue_factor_by_tile<T::kDim>(dv, left, gradients_at(stage));
    group_products();
    settle(right);
    receive(dk);
    begin_products();
    issue_factor_by_tile<T::kDim>(dk, right, queries_at(stage));
    group_products();
    await_products<2>();
    receive(dq);
    if (leads) {
      barriers.scores_empty(stage).arrive();
      if (shares_keys != key_stage) barriers.keys_empty(shares_keys).arrive();
    }
    share.add(dq);

    FusedWalk<T> next = walk;
    next.go_on();
    const bool ends_walk = next.head == next.end_head;
    int next_keys = key_stage;
    bool goes_on = true;
    if (ends_walk) {
      give_turn();  // to the group whose dq the next keys may wait for
      ++visit;
      next_keys = visit % 2;
      await(barriers.keys_full(next_keys), visit / 2 % 2);
      const int item = uniform(items[next_keys]);
      goes_on = item >= 0;
      if (goes_on) next = FusedWalk<T>(g, item);
    }
    // Behind the last tile the next one's matmuls are of what is left in shared memory, for nothing.
    if (goes_on) await(barriers.queries_full(next_stage), next_phase);
    Scores next_p;
    issue_scores(next_p, next_keys, next_stage);
    await_products<1>();
    receive(dv);
    receive(dk);
    if (leads) barriers.gradients_empty(stage).arrive();
    if (lane >= 32 - kFusedReaders) barriers.queries_empty(stage).arrive();
    if (goes_on) await(barriers.gradients_full(next_stage), next_phase);
    Scores next_dp;
    issue_dp(next_dp, next_keys, next_stage);
    if (!ends_walk) give_turn();
    finish_scores(next_p, next_dp, next.tile - next.first_tile, next_stage);

    share = ShareOfDq<T>(g, walk, group);
    shares_keys = key_stage;
    if (ends_walk) {
      // Results go out through the buffer of the next ds, of which each warp has its own rows.
      await(barriers.scores_empty(stage), (step + 2) / 2 % 2 ^ 1);
      unsigned char* own = scores_at(stage) + own_key * kPanelRowBytes;
      const Packed<bf16*> out(g.shape, g.dqkv, walk.batch);
      const int first = walk.block * kFusedKeys + own_key;
      const int left_rows = static_cast<int>(g.shape.seq) - first;
      write_keys<T>(dk, g.scale, own, out.key(walk.kv) + first * out.stride, out.stride, left_rows);
      write_keys<T>(dv, 1.0F, own, out.value(walk.kv) + first * out.stride, out.stride, left_rows);
      dk = {};
      dv = {};
    }
    if (!goes_on) break;
    p = next_p;
    dp = next_dp;
    walk = next;
    key_stage = next_keys;
  }
  const int last = step + 1;
  await(barriers.scores_full(last % 2), last / 2 % 2);
  Sums<1, 8> dq;
  issue_dq(dq, last % 2, shares_keys);
  await_products<0>();
  receive(dq);
  share.add(dq);
}

}  // namespace rooflm::backends::cuda
