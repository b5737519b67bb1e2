// Splits and merges heads: one block per position, moved as bytes, 16 at a time if head sizes allow it.
#include <algorithm>

#include "backends/cuda/kernels/heads.h"
#include "backends/cuda/kernels/launch.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;

/// Sizes in units of one access.
struct Units {
  std::int64_t seq;
  int heads, kv_heads, head;
  [[nodiscard]] __host__ __device__ int width() const { return (heads + 2 * kv_heads) * head; }
};

/// Copies between the packed row of block (b, t) and the rows of heads; kSplit: from the packed row.
template <bool kSplit, class Unit>
__global__ void __launch_bounds__(kThreads) move_heads(Units u, Unit* packed, Unit* q, Unit* k, Unit* v) {
  const std::int64_t b = blockIdx.x / u.seq;
  const std::int64_t t = blockIdx.x - b * u.seq;
  Unit* row = packed + std::int64_t{blockIdx.x} * u.width();
  for (int i = static_cast<int>(threadIdx.x); i < u.width(); i += static_cast<int>(blockDim.x)) {
    int head = i / u.head;
    const int at = i - head * u.head;
    Unit* heads = q;
    int count = u.heads;
    if (head >= u.heads) {
      head -= u.heads;
      heads = head < u.kv_heads ? k : v;
      if (head >= u.kv_heads) head -= u.kv_heads;
      count = u.kv_heads;
    }
    Unit* part = heads + ((b * count + head) * u.seq + t) * u.head + at;
    if constexpr (kSplit) {
      *part = row[i];
    } else {
      row[i] = *part;
    }
  }
}

template <bool kSplit, class Unit>
void launch_units(Stream stream, const HeadsShape& s, std::size_t row_bytes, const char* what, void* packed,
                  void* q, void* k, void* v) {
  const Units units{s.seq, static_cast<int>(s.heads), static_cast<int>(s.kv_heads),
                    static_cast<int>(row_bytes / sizeof(Unit))};
  constexpr int kWhole = 32;
  const int threads = std::min(kThreads, (units.width() + kWhole - 1) / kWhole * kWhole);
  move_heads<kSplit><<<grid_size(s.batch * s.seq, what), threads, 0, stream>>>(
      units, static_cast<Unit*>(packed), static_cast<Unit*>(q), static_cast<Unit*>(k), static_cast<Unit*>(v));
  check_launch(what);
}

template <bool kSplit>
void launch_move(Stream stream, core::DType dtype, const HeadsShape& s, const char* what, void* packed,
                 void* q, void* k, void* v) {
  with_element(dtype, what, [&]<class T>(T) {
    const std::size_t row_bytes = static_cast<std::size_t>(s.head_dim) * sizeof(T);
    if (row_bytes % sizeof(uint4) == 0 && are_aligned({packed, q, k, v})) {
      launch_units<kSplit, uint4>(stream, s, row_bytes, what, packed, q, k, v);
    } else {
      launch_units<kSplit, T>(stream, s, row_bytes, what, packed, q, k, v);
    }
  });
}

/// Both directions share the kernel's operand types; it writes only to its output.
void* writable(const void* pointer) { return const_cast<void*>(pointer); }

HeadsShape without_kv(HeadsShape shape) {
  shape.kv_heads = 0;
  return shape;
}

}  // namespace

void launch_split_heads(Stream stream, core::DType dtype, const HeadsShape& shape, const void* qkv, void* q,
                        void* k, void* v) {
  launch_move<true>(stream, dtype, shape, "split_heads", writable(qkv), q, k, v);
}

void launch_join_heads(Stream stream, core::DType dtype, const HeadsShape& shape, const void* q,
                       const void* k, const void* v, void* qkv) {
  launch_move<false>(stream, dtype, shape, "join_heads", qkv, writable(q), writable(k), writable(v));
}

void launch_merge_heads(Stream stream, core::DType dtype, const HeadsShape& shape, const void* y,
                        void* merged) {
  launch_move<false>(stream, dtype, without_kv(shape), "merge_heads", merged, writable(y), nullptr, nullptr);
}

void launch_unmerge_heads(Stream stream, core::DType dtype, const HeadsShape& shape, const void* merged,
                          void* y) {
  launch_move<true>(stream, dtype, without_kv(shape), "unmerge_heads", writable(merged), y, nullptr, nullptr);
}

}  // namespace rooflm::backends::cuda
