// The one-pass gradient of attention (attention_backward_fused.cu): what a warp group computes of each tile.
#pragma once

#include <type_traits>

#include "backends/cuda/kernels/attention_fused_walk.cuh"
#include "backends/cuda/kernels/wgmma_columns.cuh"

namespace rooflm::backends::cuda {

/// scores := p, transposed: rows are keys, columns queries. lse2: -lse log2(e) of the lane's queries.
/// kMasked: some queries are before their key; `behind`: the query of c[0] less its key.
template <bool kMasked, int kN>
__device__ void exponentials(Sums<1, kN>& scores, const float* lse2, float scale2, int behind) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const float2 own = *reinterpret_cast<const float2*>(lse2 + n * 8);
    const float offset[2] = {own.x, own.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool seen = !kMasked || behind + n * 8 + i % 2 - i / 2 * 8 >= 0;
      const float p = exp2_fast(fmaf(scores.v[0][n][i], scale2, offset[i % 2]));
      scores.v[0][n][i] = seen ? p : 0.0F;
    }
  }
}

/// dp := ds without the factor scale; delta of the lane's queries.
template <int kN>
__device__ void gradient_of_exponentials(const Sums<1, kN>& p, Sums<1, kN>& dp, const float* delta) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const float2 own = *reinterpret_cast<const float2*>(delta + n * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) dp.v[0][n][i] = p.v[0][n][i] * (dp.v[0][n][i] - (i % 2 == 0 ? own.x : own.y));
  }
}

/// A warp's sums times scale to 16 rows of dk or dv, as bf16, through `own`: its 16 rows of a panel.
template <class T>
__device__ void write_keys(const Sums<1, T::kDim / 8>& sums, float scale, unsigned char* own, bf16* to,
                           std::int64_t stride, int rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned put = shared_address(own) + lane % 16 * kPanelRowBytes;
#pragma unroll
  for (int panel = 0; panel < kPanels<T::kDim>; ++panel) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* a = sums.v[0][panel * 8 + 2 * k];
      const float* b = sums.v[0][panel * 8 + 2 * k + 1];
      const unsigned words[4] = {
          pack_pair(a[0] * scale, a[1] * scale, to), pack_pair(a[2] * scale, a[3] * scale, to),
          pack_pair(b[0] * scale, b[1] * scale, to), pack_pair(b[2] * scale, b[3] * scale, to)};
      store_matrices(put + ((2 * k + lane / 16) ^ lane % 8) * 16, words);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 4 + lane / 8;
      const int chunk = lane % 8;
      const uint4 words =
          *reinterpret_cast<const uint4*>(own + row * kPanelRowBytes + (chunk ^ row % 8) * 16);
      if (row < rows) *reinterpret_cast<uint4*>(to + row * stride + panel * kPanelCols + chunk * 8) = words;
    }
    __syncwarp();
  }
}

/// The same address, from which the compiler computes others anew rather than keep them in registers.
__device__ inline unsigned renew(unsigned address) {
  asm volatile("" : "+r"(address));
  return address;
}

/// ds of a warp's 16 keys to panels of 64 queries; `first`: where the lane's first matrix row goes. The
/// others differ in bits of the swizzle, as panels are aligned.
template <int kK>
__device__ void store_scores(unsigned first, const Factor<1, kK>& ds) {
  const unsigned to = renew(first);
#pragma unroll
  for (int k = 0; k < kK; ++k) {
    store_matrices((to ^ k % 4 * 32) + k / 4 * kPanelBytes<kFusedKeys>, ds.v[0][k]);
  }
}

__device__ inline void store_pair(unsigned to, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(first), "f"(second) : "memory");
}

/// A warp's 16 rows of dq to a part, as place_in_part says; `first`: where the lane's first two sums go.
__device__ inline void store_sums(unsigned first, const Sums<1, 8>& dq) {
  constexpr int kEightRows = 8 * 64 * static_cast<int>(sizeof(float));
  const unsigned to = renew(first);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    store_pair(to ^ n * 32, dq.v[0][n][0], dq.v[0][n][1]);
    store_pair((to ^ n * 32) + kEightRows, dq.v[0][n][2], dq.v[0][n][3]);
  }
}

/// A group of four warps with 64 of the block's keys.
template <class T>
__device__ void compute_walks(const FusedGradient& g, unsigned char* shared, FusedBarriers<T> barriers,
                              const volatile int* items) {
  constexpr int kN = T::kQueries / 8;
  constexpr int kK = T::kQueries / 16;
  constexpr int kRowParts = T::kQueries / 64;
  const int group = static_cast<int>(threadIdx.x) / kWarpGroup - 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int own_row = static_cast<int>(threadIdx.x) / 32 % 4 * 16;  // the warp's, of the group's 64
  const int own_key = group * kGroupRows + own_row;
  const float scale2 = g.scale * kLog2E;
  unsigned char* scores = shared + T::kScoresAt;
  const unsigned first_scores =
      shared_address(scores) + (own_key + lane % 16) * kPanelRowBytes + (lane / 16 ^ lane % 8) * 16;
  const unsigned first_sums = shared_address(shared) + T::kSumsAt + group * kPartBytes +
                              4 * place_in_part(own_row + lane / 4, lane % 4 * 2);
  // In the tile of the diagonal: the query of c[0] less its key.
  const int behind = lane % 4 * 2 - lane / 4 - own_key;
  int step = 0;
  for (int visit = 0;; ++visit) {
    const int key_stage = visit % T::kKeyStages;
    await_phase(barriers.keys_full(key_stage), visit / T::kKeyStages % 2);
    const int item = items[key_stage];
    if (item < 0) return;
    int steps = 0;    // in all
    int of_head = 0;  // of one head
    {
      const FusedWalk<T> walk(g, item);
      steps = walk.steps();
      of_head = walk.tiles - walk.first_tile;
    }
    int from_diagonal = 0;  // tiles
    const unsigned char* keys = shared + key_stage * 2 * T::kKeyBytes;
    const unsigned char* values = keys + T::kKeyBytes;
    Sums<1, T::kDim / 8> dk{};
    Sums<1, T::kDim / 8> dv{};
    Sums<1, kN> p;
    const auto issue_scores = [&](int at) {
      const int stage = at % 2;
      await_phase(barriers.queries_full(stage), at / 2 % 2);
      receive(p);
      begin_products();
      issue_rows_by_rows<T::kDim, kFusedKeys>(p, keys, group * kGroupRows,
                                              shared + T::kQueriesAt + stage * T::kQueryBytes);
      group_products();
    };
    const auto take_step = [&]<class IsLast>(IsLast) {
      const int stage = step % 2;
      const unsigned char* queries = shared + T::kQueriesAt + stage * T::kQueryBytes;
      const unsigned char* gradients = shared + T::kGradientsAt + stage * T::kQueryBytes;
      const auto* rows =
          reinterpret_cast<const float*>(shared + T::kRowsAt + stage * T::kRowBytes) + lane % 4 * 2;
      if constexpr (!T::kAhead) issue_scores(step);
      Sums<1, kN> ds;
      await_phase(barriers.gradients_full(stage), step / 2 % 2);
      begin_products();
      issue_rows_by_rows<T::kDim, kFusedKeys>(ds, values, group * kGroupRows, gradients);
      group_products();
      await_products<1>();
      receive(p);
      if (from_diagonal >= kFusedKeys / T::kQueries) {
        exponentials<false>(p, rows, scale2, 0);
      } else {
        exponentials<true>(p, rows, scale2, behind + from_diagonal * T::kQueries);
      }
      Factor<1, kK> left;
      Factor<1, kK> right;
      await_products<0>();
      receive(ds);
      gradient_of_exponentials(p, ds, rows + T::kQueries);
      left.round(p);
      right.round(ds);
      await_phase(barriers.scores_empty(), step % 2 ^ 1);
      store_scores(first_scores, right);
      publish_to_matrix_unit();
      settle(left);
      receive(dv);
      begin_products();
      issue_factor_by_tile<T::kDim>(dv, left, gradients);
      group_products();
      settle(right);
      receive(dk);
      begin_products();
      issue_factor_by_tile<T::kDim>(dk, right, queries);
      group_products();
      await_products<1>();
      receive(dv);
      if (lane == 0) barriers.gradients_empty(stage).arrive();
      meet<1, 2 * kWarpGroup>();  // ds of both groups is there
      Sums<1, 8> dq;
      begin_products();
      issue_panel_by_panel<kFusedKeys>(dq, scores + group % kRowParts * kPanelBytes<kFusedKeys>,
                                       keys + group / kRowParts * kPanelBytes<kFusedKeys>);
      group_products();
      await_products<1>();
      receive(dk);
      if (lane == 0) barriers.queries_empty(stage).arrive();
      if constexpr (T::kAhead && !IsLast::value) {
        issue_scores(step + 1);
        await_products<1>();
      } else {
        await_products<0>();
      }
      receive(dq);
      if (lane == 0) barriers.scores_empty().arrive();
      await_phase(barriers.sums_empty(group), step % 2 ^ 1);
      store_sums(first_sums, dq);
      publish_to_matrix_unit();  // and to the copy engine
      __syncwarp();
      if (lane == 0) barriers.sums_full(group).arrive();
      if constexpr (T::kAhead && !IsLast::value) {
        await_products<0>();  // the compiler wants no product under way at the end of a loop
        receive(p);
      }
      ++step;
      if (++from_diagonal == of_head) from_diagonal = 0;
    };
    if constexpr (T::kAhead) {
      issue_scores(step);
      await_products<0>();
      receive(p);
      for (int i = 1; i < steps; ++i) take_step(std::false_type{});
      take_step(std::true_type{});
    } else {
      for (int i = 0; i < steps; ++i) take_step(std::true_type{});
    }
    const FusedWalk<T> walk(g, items[key_stage]);
    __syncwarp();
    if (lane == 0) barriers.keys_empty(key_stage).arrive();
    await_phase(barriers.scores_empty(), step % 2 ^ 1);  // results go out through ds
    unsigned char* own = scores + own_key * kPanelRowBytes;
    const Packed<bf16*> out(g.shape, g.dqkv, walk.batch);
    const int first = walk.block * kFusedKeys + own_key;
    const int left_rows = static_cast<int>(g.shape.seq) - first;
    write_keys<T>(dk, g.scale, own, out.key(walk.kv) + first * out.stride, out.stride, left_rows);
    write_keys<T>(dv, 1.0F, own, out.value(walk.kv) + first * out.stride, out.stride, left_rows);
  }
}

}  // namespace rooflm::backends::cuda
