// Writes rows into key/value caches, and gathers the last row of each text: one block per row, moved as
// bytes, 16 at a time if the sizes allow it.
#include <algorithm>

#include "backends/cuda/kernels/attention/decode_attention.h"
#include "backends/cuda/kernels/launch.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;

/// Sizes in units of one access.
struct Units {
  std::int64_t seq, positions;
  int heads, kv_heads, head;
};

/// Block (b, t) writes the keys and values of that row into slot b, or slots[b] if there are slots.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    append_cache(Units u, const Unit* qkv, const std::int32_t* slots, Unit* k, Unit* v) {
  const std::int64_t b = blockIdx.x / u.seq;
  const std::int64_t t = blockIdx.x - b * u.seq;
  const std::int64_t slot = slots == nullptr ? b : std::int64_t{slots[b]};
  const int kept = u.kv_heads * u.head;
  const Unit* keys = qkv + std::int64_t{blockIdx.x} * (u.heads * u.head + 2 * kept) + u.heads * u.head;
  for (int i = static_cast<int>(threadIdx.x); i < kept; i += kThreads) {
    const int head = i / u.head;
    const std::int64_t to = ((slot * u.kv_heads + head) * u.positions + t) * u.head + (i - head * u.head);
    k[to] = keys[i];
    v[to] = keys[kept + i];
  }
}

/// Block b gathers the last row of text b.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    last_rows(std::int64_t seq, std::int64_t cols, const Unit* x, const std::int32_t* lengths, Unit* y) {
  const std::int64_t b = blockIdx.x;
  const std::int64_t last = min(max(std::int64_t{lengths[b]}, std::int64_t{1}), seq) - 1;
  for (std::int64_t i = threadIdx.x; i < cols; i += kThreads)
    y[b * cols + i] = x[(b * seq + last) * cols + i];
}

/// Block r gathers row rows[r].
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    pick_rows(std::int64_t count, std::int64_t cols, const Unit* x, const std::int32_t* rows, Unit* y) {
  const std::int64_t row = min(max(std::int64_t{rows[blockIdx.x]}, std::int64_t{0}), count - 1);
  for (std::int64_t i = threadIdx.x; i < cols; i += kThreads) y[blockIdx.x * cols + i] = x[row * cols + i];
}

/// Calls body(Unit{}, units of `row_bytes`) with the access type for rows of that size.
template <class T, class Body>
void with_unit(std::int64_t row_elements, bool aligned, Body&& body) {
  const std::int64_t bytes = row_elements * static_cast<std::int64_t>(sizeof(T));
  constexpr auto kWide = static_cast<std::int64_t>(sizeof(uint4));
  if (aligned && bytes % kWide == 0) return body(uint4{}, bytes / kWide);
  body(T{}, row_elements);
}

}  // namespace

void launch_append_cache(Stream stream, core::DType dtype, const DecodeShape& shape, std::int64_t seq,
                         const void* qkv, const std::int32_t* slots, void* k, void* v) {
  constexpr const char* kWhat = "append_cache";
  with_element(dtype, kWhat, [&]<class T>(T) {
    with_unit<T>(shape.head_dim, are_aligned({qkv, k, v}), [&]<class Unit>(Unit, std::int64_t head) {
      const Units units{.seq = seq,
                        .positions = shape.positions,
                        .heads = static_cast<int>(shape.heads),
                        .kv_heads = static_cast<int>(shape.kv_heads),
                        .head = static_cast<int>(head)};
      append_cache<<<grid_size(shape.batch * seq, kWhat), kThreads, 0, stream>>>(
          units, static_cast<const Unit*>(qkv), slots, static_cast<Unit*>(k), static_cast<Unit*>(v));
    });
  });
  check_launch(kWhat);
}

void launch_last_rows(Stream stream, core::DType dtype, std::int64_t batch, std::int64_t seq,
                      std::int64_t cols, const void* x, const std::int32_t* lengths, void* y) {
  constexpr const char* kWhat = "last_rows";
  with_element(dtype, kWhat, [&]<class T>(T) {
    with_unit<T>(cols, are_aligned({x, y}), [&]<class Unit>(Unit, std::int64_t units) {
      last_rows<<<grid_size(batch, kWhat), kThreads, 0, stream>>>(seq, units, static_cast<const Unit*>(x),
                                                                  lengths, static_cast<Unit*>(y));
    });
  });
  check_launch(kWhat);
}

void launch_pick_rows(Stream stream, core::DType dtype, std::int64_t count, std::int64_t picked,
                      std::int64_t cols, const void* x, const std::int32_t* rows, void* y) {
  constexpr const char* kWhat = "pick_rows";
  with_element(dtype, kWhat, [&]<class T>(T) {
    with_unit<T>(cols, are_aligned({x, y}), [&]<class Unit>(Unit, std::int64_t units) {
      pick_rows<<<grid_size(picked, kWhat), kThreads, 0, stream>>>(count, units, static_cast<const Unit*>(x),
                                                                   rows, static_cast<Unit*>(y));
    });
  });
  check_launch(kWhat);
}

}  // namespace rooflm::backends::cuda
