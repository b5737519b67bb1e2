// Packs of eight neighbouring elements: 128-bit accesses where aligned, single elements otherwise.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace rooflm::backends::cuda {

constexpr int kPack = 8;

/// Eight elements in fp32.
struct Pack {
  float v[kPack];
  __device__ float& operator[](int i) { return v[i]; }
  __device__ float operator[](int i) const { return v[i]; }
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <class T>
__device__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return __float2bfloat16_rn(x);
  }
}

/// The value of x after being stored as T.
template <class T>
__device__ float rounded(float x) {
  return to_float(from_float<T>(x));
}

/// Two neighbours, the first in the lower half of a word.
__device__ inline float2 unpack_pair(unsigned word, const __nv_bfloat16* /*type*/) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000U)};
}
__device__ inline float2 unpack_pair(unsigned word, const __half* /*type*/) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}
__device__ inline unsigned pack_pair(float first, float second, const __nv_bfloat16* /*type*/) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const unsigned*>(&pair);
}
__device__ inline unsigned pack_pair(float first, float second, const __half* /*type*/) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const unsigned*>(&pair);
}

/// Eight elements of 16 bits.
template <class T>
__device__ Pack unpack_words(const uint4& raw) {
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
  Pack pack;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = unpack_pair(words[i], static_cast<const T*>(nullptr));
    pack[2 * i] = pair.x;
    pack[2 * i + 1] = pair.y;
  }
  return pack;
}

__device__ inline Pack load_whole(const float* from) {
  const float4 a = *reinterpret_cast<const float4*>(from);
  const float4 b = *reinterpret_cast<const float4*>(from + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

template <class T>
__device__ Pack load_whole(const T* from) {
  return unpack_words<T>(*reinterpret_cast<const uint4*>(from));
}

__device__ inline void store_whole(float* to, const Pack& pack) {
  reinterpret_cast<float4*>(to)[0] = make_float4(pack[0], pack[1], pack[2], pack[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(pack[4], pack[5], pack[6], pack[7]);
}

template <class T>
__device__ void store_whole(T* to, const Pack& pack) {
  uint4 raw;
  unsigned* words = &raw.x;
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = pack_pair(pack[2 * i], pack[2 * i + 1], to);
  *reinterpret_cast<uint4*>(to) = raw;
}

/// Eight elements as stored: prefetched data takes fewer registers this way.
template <class T>
struct RawPack {
  uint4 v[kPack * sizeof(T) / sizeof(uint4)];
};

template <class T>
__device__ RawPack<T> load_raw(const T* from) {
  RawPack<T> pack;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(pack) / sizeof(uint4)); ++i) {
    pack.v[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  return pack;
}

__device__ inline Pack unpack(const RawPack<float>& raw) {
  return {{__uint_as_float(raw.v[0].x), __uint_as_float(raw.v[0].y), __uint_as_float(raw.v[0].z),
           __uint_as_float(raw.v[0].w), __uint_as_float(raw.v[1].x), __uint_as_float(raw.v[1].y),
           __uint_as_float(raw.v[1].z), __uint_as_float(raw.v[1].w)}};
}

template <class T>
__device__ Pack unpack(const RawPack<T>& raw) {
  return unpack_words<T>(raw.v[0]);
}

template <class T>
__device__ unsigned bits_of(const T* from) {
  static_assert(sizeof(T) == sizeof(unsigned short));
  return *reinterpret_cast<const unsigned short*>(from);
}

/// from[first .. first + 8) of an array of `count`, one element at a time; zeros beyond its end.
__device__ inline RawPack<float> load_single(const float* from, std::int64_t first, std::int64_t count) {
  unsigned words[kPack];
#pragma unroll
  for (int i = 0; i < kPack; ++i) words[i] = first + i < count ? __float_as_uint(from[first + i]) : 0U;
  return {{{words[0], words[1], words[2], words[3]}, {words[4], words[5], words[6], words[7]}}};
}

template <class T>
__device__ RawPack<T> load_single(const T* from, std::int64_t first, std::int64_t count) {
  unsigned words[kPack / 2];
#pragma unroll
  for (int i = 0; i < kPack / 2; ++i) {
    const std::int64_t at = first + 2 * i;
    const unsigned low = at < count ? bits_of(from + at) : 0U;
    const unsigned high = at + 1 < count ? bits_of(from + at + 1) : 0U;
    words[i] = low | high << 16;
  }
  return {{{words[0], words[1], words[2], words[3]}}};
}

/// from[first .. first + 8) of an array of `count`; zeros beyond its end. `aligned`: from + first can be read
/// 16 bytes at a time for every `first` that is a multiple of eight. Conversion comes after the branch, so a
/// thread waits for a load only where it is used and keeps several loads in flight.
template <class T>
__device__ RawPack<T> load_raw_pack(const T* from, std::int64_t first, std::int64_t count, bool aligned) {
  return aligned && first + kPack <= count ? load_raw(from + first) : load_single(from, first, count);
}

template <class T>
__device__ Pack load_pack(const T* from, std::int64_t first, std::int64_t count, bool aligned) {
  return unpack(load_raw_pack(from, first, count, aligned));
}

template <class T>
__device__ void store_pack(T* to, std::int64_t first, std::int64_t count, bool aligned, const Pack& pack) {
  if (aligned && first + kPack <= count) return store_whole(to + first, pack);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (first + i < count) to[first + i] = from_float<T>(pack[i]);
  }
}

}  // namespace rooflm::backends::cuda
