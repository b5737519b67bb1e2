// Whole-array loops: add, scale, fill, cast.
#include "backends/cpu/fast/elementwise.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <cstring>

#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec_math.h"
#include "backends/cpu/resources.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

// Least elements per thread: with fewer a second thread does not pay off.
constexpr std::int64_t kGrain = 8192;

// Calls `body(i, group)` on groups of lanes of [0, n), whose results go to `to`, on all threads. `streams`:
// streaming stores; no input may lie in `to`.
template <class T, class Body>
void each_group(std::int64_t n, const T* to, bool streams, const Body& body) {
  streams = streams && is_streamed(n * static_cast<std::int64_t>(sizeof(T)));
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_lanes_to(to, streams, begin, end, body);
    if (streams) end_stream();
  });
}
template <class T, class Body>
void each_bundle(std::int64_t n, const T* to, bool streams, const Body& body) {
  streams = streams && is_streamed(n * static_cast<std::int64_t>(sizeof(T)));
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_bundles_to(to, streams, begin, end, body);
    if (streams) end_stream();
  });
}

}  // namespace

template <Storage S>
void add(std::int64_t n, const S* a, const S* b, S* y) {
  each_bundle(n, y, y != a && y != b, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
    store_at(y + i, load_at(a + i, group) + load_at(b + i, group), group);
  });
}

template <Storage S>
void accumulate(std::int64_t n, const S* x, float* y) {
  each_group(n, y, false, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
    store_at(y + i, load_at(y + i, group) + load_at(x + i, group), group);
  });
}

template <Storage S>
void scale(std::int64_t n, float factor, const S* x, S* y) {
  each_bundle(n, y, x != y, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
    store_at(y + i, load_at(x + i, group) * factor, group);
  });
}

template <Storage S>
void fill(std::int64_t n, float value, S* y) {
  each_group(n, y, true,
             [=](auto i, auto group) ROOFLM_INLINE_LAMBDA { store_at(y + i, splat(value), group); });
}

void cast(std::int64_t n, const float* x, core::Bf16* y) {
  each_group(n, y, true,
             [=](auto i, auto group) ROOFLM_INLINE_LAMBDA { store_at(y + i, load_at(x + i, group), group); });
}

void cast(std::int64_t n, const core::Bf16* x, float* y) {
  each_group(n, y, true,
             [=](auto i, auto group) ROOFLM_INLINE_LAMBDA { store_at(y + i, load_at(x + i, group), group); });
}

void cast(std::int64_t n, const float* x, core::F16* y) {
  parallel_for(n, kGrain, [=](std::int64_t i, std::int64_t end) {
#if defined(__F16C__)
    for (; i + 8 <= end; i += 8) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), halves);
    }
#endif
    for (; i < end; ++i) y[i] = core::F16(x[i]);
  });
}

void cast(std::int64_t n, const core::F16* x, float* y) {
  parallel_for(n, kGrain, [=](std::int64_t i, std::int64_t end) {
#if defined(__F16C__)
    for (; i + 8 <= end; i += 8) {
      _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
    }
#endif
    for (; i < end; ++i) y[i] = static_cast<float>(x[i]);
  });
}

void copy_bytes(std::int64_t n, const void* from, void* to) {
  parallel_for(n, kGrain * 4, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

template void add(std::int64_t, const float*, const float*, float*);
template void add(std::int64_t, const core::Bf16*, const core::Bf16*, core::Bf16*);
template void accumulate(std::int64_t, const float*, float*);
template void accumulate(std::int64_t, const core::Bf16*, float*);
template void scale(std::int64_t, float, const float*, float*);
template void scale(std::int64_t, float, const core::Bf16*, core::Bf16*);
template void fill(std::int64_t, float, float*);
template void fill(std::int64_t, float, core::Bf16*);

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {

Kernel make_add(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t n = v.in(0).shape.numel();
    return [n](const KernelArgs& args) {
      add(n, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
          static_cast<S*>(args.out[0]));
    };
  });
}

template <class From, class To>
Kernel cast_kernel(std::int64_t n) {
  return [n](const KernelArgs& args) {
    cast(n, static_cast<const From*>(args.in[0]), static_cast<To*>(args.out[0]));
  };
}

Kernel make_cast(const OpView& v) {
  const std::int64_t n = v.in(0).shape.numel();
  const auto is = [&](DType from, DType to) { return v.inputs_are({0}, from) && v.outputs_are({0}, to); };
  if (is(DType::f32, DType::bf16)) return cast_kernel<float, core::Bf16>(n);
  if (is(DType::bf16, DType::f32)) return cast_kernel<core::Bf16, float>(n);
  if (is(DType::f32, DType::f16)) return cast_kernel<float, core::F16>(n);
  if (is(DType::f16, DType::f32)) return cast_kernel<core::F16, float>(n);
  return {};
}

MakerRows elementwise_rows() {
  namespace ops = program::ops;
  return {{&ops::kAdd, make_add, "add"}, {&ops::kCast, make_cast, "cast"}};
}

}  // namespace rooflm::backends::cpu::fast
