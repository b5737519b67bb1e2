// Whole-array loops: add, scale, fill, cast.
#include "backends/cpu/fast/elementwise.h"

#include <cstring>

#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"

namespace rooflm::backends::cpu {
namespace {

// Elements below which a second thread does not pay.
constexpr std::int64_t kGrain = 8192;

// Calls `body(i, count)` on groups of lanes of [0, n), on all threads.
template <class Body>
void each_group(std::int64_t n, const Body& body) {
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) { for_lanes(begin, end, body); });
}

}  // namespace

template <Storage S>
void add(std::int64_t n, const S* a, const S* b, S* y) {
  each_group(
      n, [=](auto i, auto count) { store_at(y + i, load_at(a + i, count) + load_at(b + i, count), count); });
}

template <Storage S>
void accumulate(std::int64_t n, const S* x, float* y) {
  each_group(
      n, [=](auto i, auto count) { store_at(y + i, load_at(y + i, count) + load_at(x + i, count), count); });
}

template <Storage S>
void scale(std::int64_t n, float factor, const S* x, S* y) {
  each_group(n, [=](auto i, auto count) { store_at(y + i, load_at(x + i, count) * factor, count); });
}

template <Storage S>
void fill(std::int64_t n, float value, S* y) {
  each_group(n, [=](auto i, auto count) { store_at(y + i, splat(value), count); });
}

void cast(std::int64_t n, const float* x, core::Bf16* y) {
  each_group(n, [=](auto i, auto count) { store_at(y + i, load_at(x + i, count), count); });
}

void cast(std::int64_t n, const core::Bf16* x, float* y) {
  each_group(n, [=](auto i, auto count) { store_at(y + i, load_at(x + i, count), count); });
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
