// Packed weights as plain ones, for matmuls of many rows: a thread has eight elements of a row.
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/few_rows/codes.cuh"
#include "backends/cuda/kernels/few_rows/packed_weight.h"
#include "core/packed_weights.h"

namespace rooflm::backends::cuda {
namespace {

/// The planes of a matrix.
struct Planes {
  std::int64_t width;
  const std::uint8_t* codes;
  const std::byte* scales;  // the plane after the codes
  const float* second_scales;
  const float* scale_values;
};

/// Four elements from `at` on, a multiple of four, of bytes.
template <DType kFormat>
__device__ void four_of_bytes(const std::uint8_t* codes, std::int64_t at, float* to) {
  const unsigned word = *reinterpret_cast<const unsigned*>(codes + at);
  unsigned pairs[2];
  if constexpr (kFormat == DType::int8) {
    unpack_int8<bf16>(word, pairs);
  } else {
    unpack_fp8<bf16>(word, pairs);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    to[2 * i] = __uint_as_float(pairs[i] << 16);
    to[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000U);
  }
}

/// Values of nf4's codes, in shared memory: sixteen words of sixteen banks, so lanes may read any of them at
/// once. (A table in constant memory serves one code at a time.)
__device__ const float* nf4_table() {
  constexpr float kValues[16] = {-1.0F,          -0.6961928010F, -0.5250730515F, -0.3949174881F,
                                 -0.2844413817F, -0.1847734302F, -0.0910500363F, 0.0F,
                                 0.0795802996F,  0.1609302014F,  0.2461123019F,  0.3379152417F,
                                 0.4407098293F,  0.5626170039F,  0.7229568362F,  1.0F};
  __shared__ float values[16];
  if (threadIdx.x < 16) values[threadIdx.x] = kValues[threadIdx.x];
  __syncthreads();
  return values;
}

/// Eight elements of element `at` of the matrix on, a multiple of eight. `nf4`: nf4_table, for that format.
template <DType kFormat>
__device__ Pack eight_at(const Planes& p, const float* nf4, std::int64_t row, std::int64_t at) {
  Pack x;
  if constexpr (kFormat == DType::int8 || kFormat == DType::fp8_rows) {
    const float scale = reinterpret_cast<const float*>(p.scales)[row];
    four_of_bytes<kFormat>(p.codes, at, x.v);
    four_of_bytes<kFormat>(p.codes, at + 4, x.v + 4);
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] *= scale;
  } else if constexpr (kFormat == DType::sparse) {
    const auto* kept = reinterpret_cast<const bf16*>(p.codes) + at / 2;
    const auto bits = static_cast<unsigned>(p.scales[at / 8]);
    int next = 0;
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = (bits >> i & 1) != 0 ? to_float(kept[next++]) : 0.0F;
  } else {
    const unsigned word = *reinterpret_cast<const unsigned*>(p.codes + at / 2);
    float scale;
    if constexpr (kFormat == DType::int4) {
      scale = reinterpret_cast<const float*>(p.scales)[at / 128];
    } else {
      const std::int64_t second = at / core::kScaleGroup * 2;
      const auto code = static_cast<unsigned>(p.scales[at / 64]);
      scale = fmaf(p.scale_values[code], p.second_scales[second], p.second_scales[second + 1]);
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const unsigned code = word >> 4 * i & 15U;
      x[i] = scale * (kFormat == DType::int4 ? static_cast<float>(static_cast<int>(code) - 8) : nf4[code]);
    }
  }
  return x;
}

template <DType kFormat, class T>
__global__ void __launch_bounds__(kElementThreads) unpack(Planes p, std::int64_t rows, bool aligned, T* y) {
  follow_previous();
  const float* nf4 = nullptr;
  if constexpr (kFormat == DType::nf4) nf4 = nf4_table();
  const Place place(own_pack(), p.width);
  if (place.row >= rows) return;
  const Pack x = eight_at<kFormat>(p, nf4, place.row, place.row * p.width + place.col);
  store_pack(y + place.row * p.width, place.col, p.width, aligned, x);
}

template <DType kFormat>
void launch_format(Stream stream, const PackedWeight& w, core::DType to, void* y) {
  constexpr const char* kWhat = "unpack";
  const std::int64_t count = w.rows * w.width;
  const auto* data = static_cast<const std::uint8_t*>(w.data);
  const std::int64_t code_bytes = kFormat == DType::sparse ? count : count * 16 / kPerLoad<kFormat>;
  const Planes planes{.width = w.width,
                      .codes = data,
                      .scales = reinterpret_cast<const std::byte*>(data + code_bytes),
                      .second_scales = reinterpret_cast<const float*>(data + code_bytes + count / 64),
                      .scale_values = w.scale_values};
  with_element(to, kWhat, [&]<class T>(T) {
    launch_chained(stream, kWhat, unpack<kFormat, T>, dim3(row_blocks(w.rows, w.width, kWhat)),
                   kElementThreads, 0, planes, w.rows, are_aligned({y}), static_cast<T*>(y));
  });
}

}  // namespace

void launch_unpack(Stream stream, const PackedWeight& weight, core::DType to, void* y) {
  switch (weight.dtype) {
    case DType::int8:
      return launch_format<DType::int8>(stream, weight, to, y);
    case DType::fp8_rows:
      return launch_format<DType::fp8_rows>(stream, weight, to, y);
    case DType::int4:
      return launch_format<DType::int4>(stream, weight, to, y);
    case DType::nf4:
      return launch_format<DType::nf4>(stream, weight, to, y);
    case DType::sparse:
      return launch_format<DType::sparse>(stream, weight, to, y);
    default:
      throw core::Unavailable("unpack on cuda: no kernel for " + std::string(core::name_of(weight.dtype)));
  }
}

}  // namespace rooflm::backends::cuda
