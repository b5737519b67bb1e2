// Operands of latent attention as flash attention takes them, and its gradients back: a block for each token,
// moved as bytes, 16 at a time if the sizes allow it.
#include "backends/cuda/kernels/attention/latent_attention.h"
#include "backends/cuda/kernels/launch.cuh"
#include "backends/cuda/kernels/pack.cuh"

namespace rooflm::backends::cuda {
namespace {

constexpr int kThreads = 256;

/// Sizes in units of one access.
struct Units {
  int heads, plain, rotary, v_dim, dim;
  [[nodiscard]] __device__ int qk_dim() const { return plain + rotary; }
  [[nodiscard]] __device__ int kv_dim() const { return plain + v_dim; }
  [[nodiscard]] __device__ int width() const { return heads * dim; }
};

template <class Unit>
__global__ void __launch_bounds__(kThreads)
    pack_latent(Units u, const Unit* q, const Unit* kv, const Unit* rotary, Unit* qkv) {
  const std::int64_t row = blockIdx.x;
  q += row * u.heads * u.qk_dim();
  kv += row * u.heads * u.kv_dim();
  rotary += row * u.rotary;
  qkv += row * 3 * u.width();
  for (int i = static_cast<int>(threadIdx.x); i < 3 * u.width(); i += kThreads) {
    const int part = i / u.width();
    const int head = (i - part * u.width()) / u.dim;
    const int d = i % u.dim;
    Unit value{};
    if (part == 0 && d < u.qk_dim()) value = q[head * u.qk_dim() + d];
    if (part == 1 && d < u.plain) value = kv[head * u.kv_dim() + d];
    if (part == 1 && d >= u.plain && d < u.qk_dim()) value = rotary[d - u.plain];
    if (part == 2 && d < u.v_dim) value = kv[head * u.kv_dim() + u.plain + d];
    qkv[i] = value;
  }
}

template <class Unit>
__global__ void __launch_bounds__(kThreads) unpack_latent(Units u, const Unit* dqkv, Unit* dq, Unit* dkv) {
  const std::int64_t row = blockIdx.x;
  dqkv += row * 3 * u.width();
  dq += row * u.heads * u.qk_dim();
  dkv += row * u.heads * u.kv_dim();
  for (int i = static_cast<int>(threadIdx.x); i < u.heads * u.qk_dim(); i += kThreads) {
    const int head = i / u.qk_dim();
    dq[i] = dqkv[head * u.dim + i - head * u.qk_dim()];
  }
  for (int i = static_cast<int>(threadIdx.x); i < u.heads * u.kv_dim(); i += kThreads) {
    const int head = i / u.kv_dim();
    const int d = i - head * u.kv_dim();
    const int part = d < u.plain ? 1 : 2;
    dkv[i] = dqkv[part * u.width() + head * u.dim + (part == 1 ? d : d - u.plain)];
  }
}

/// In the order of heads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_rotary(std::int64_t rows, Units u, const T* dqkv, T* drotary) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * u.rotary) return;
  const std::int64_t row = i / u.rotary;
  const T* from = dqkv + (row * 3 + 1) * u.width() + u.plain + (i - row * u.rotary);
  float sum = 0;
#pragma unroll 4
  for (int head = 0; head < u.heads; ++head) sum += to_float(from[head * u.dim]);
  drotary[i] = from_float<T>(sum);
}

template <class Unit>
__global__ void __launch_bounds__(kThreads)
    resize_rows(std::int64_t rows, std::int64_t from_cols, std::int64_t to_cols, const Unit* from, Unit* to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * to_cols) return;
  const std::int64_t row = i / to_cols;
  const std::int64_t col = i - row * to_cols;
  to[i] = col < from_cols ? from[row * from_cols + col] : Unit{};
}

/// Calls body(Unit{}, elements of one unit) with the widest access that all sizes are multiples of.
template <class T, class Body>
void with_unit(std::initializer_list<std::int64_t> sizes, bool aligned, Body&& body) {
  constexpr auto kWide = static_cast<std::int64_t>(sizeof(uint4) / sizeof(T));
  for (const std::int64_t size : sizes) aligned = aligned && size % kWide == 0;
  if (aligned) return body(uint4{}, kWide);
  body(T{}, std::int64_t{1});
}

Units units_of(const LatentShape& s, std::int64_t each) {
  const auto in_units = [&](std::int64_t elements) { return static_cast<int>(elements / each); };
  return {.heads = static_cast<int>(s.heads),
          .plain = in_units(s.plain),
          .rotary = in_units(s.rotary),
          .v_dim = in_units(s.v_dim),
          .dim = in_units(s.head_dim)};
}

}  // namespace

void launch_pack_latent(Stream stream, core::DType dtype, const LatentShape& s, const void* q, const void* kv,
                        const void* rotary, void* qkv) {
  constexpr const char* kWhat = "latent_attention";
  const bool aligned = are_aligned({q, kv, rotary, qkv});
  with_element(dtype, kWhat, [&]<class T>(T) {
    with_unit<T>({s.plain, s.rotary, s.v_dim, s.head_dim}, aligned, [&]<class Unit>(Unit, std::int64_t each) {
      pack_latent<<<grid_size(s.rows, kWhat), kThreads, 0, stream>>>(
          units_of(s, each), static_cast<const Unit*>(q), static_cast<const Unit*>(kv),
          static_cast<const Unit*>(rotary), static_cast<Unit*>(qkv));
    });
  });
  check_launch(kWhat);
}

void launch_unpack_latent(Stream stream, core::DType dtype, const LatentShape& s, const void* dqkv, void* dq,
                          void* dkv, void* drotary) {
  constexpr const char* kWhat = "latent_attention_backward";
  const bool aligned = are_aligned({dqkv, dq, dkv});
  with_element(dtype, kWhat, [&]<class T>(T) {
    with_unit<T>({s.plain, s.rotary, s.v_dim, s.head_dim}, aligned, [&]<class Unit>(Unit, std::int64_t each) {
      unpack_latent<<<grid_size(s.rows, kWhat), kThreads, 0, stream>>>(
          units_of(s, each), static_cast<const Unit*>(dqkv), static_cast<Unit*>(dq), static_cast<Unit*>(dkv));
    });
    const unsigned blocks = grid_size(ceil_div(s.rows * s.rotary, kThreads), kWhat);
    sum_rotary<T><<<blocks, kThreads, 0, stream>>>(s.rows, units_of(s, 1), static_cast<const T*>(dqkv),
                                                   static_cast<T*>(drotary));
  });
  check_launch(kWhat);
}

void launch_resize_rows(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t from_cols,
                        std::int64_t to_cols, const void* from, void* to) {
  constexpr const char* kWhat = "latent_attention";
  with_element(dtype, kWhat, [&]<class T>(T) {
    with_unit<T>({from_cols, to_cols}, are_aligned({from, to}), [&]<class Unit>(Unit, std::int64_t each) {
      const std::int64_t units = rows * to_cols / each;
      resize_rows<<<grid_size(ceil_div(units, kThreads), kWhat), kThreads, 0, stream>>>(
          rows, from_cols / each, to_cols / each, static_cast<const Unit*>(from), static_cast<Unit*>(to));
    });
  });
  check_launch(kWhat);
}

}  // namespace rooflm::backends::cuda
