// What collectives ask NCCL for, without a GPU: NCCL is a log of its calls.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/collectives/collectives.h"
#include "backends/cuda/collectives/copy_engine.h"
#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

using Lines = std::vector<std::string>;

alignas(float) std::array<std::byte, 4096> memory;
Lines lines;

/// Elements of fp32 from the beginning of the memory.
std::ptrdiff_t place(const void* data) { return (static_cast<const std::byte*>(data) - memory.data()) / 4; }
float* element(std::ptrdiff_t i) { return reinterpret_cast<float*>(memory.data()) + i; }

nccl::Result note(std::string line) {
  lines.push_back(std::move(line));
  return nccl::kSuccess;
}

const NcclLibrary& logging() {
  static const NcclLibrary library = [] {
    NcclLibrary l;
    l.group_start = [] { return nccl::kSuccess; };
    l.group_end = [] { return note("end"); };
    l.all_reduce = [](const void* from, void* to, std::size_t count, nccl::DataType, nccl::RedOp, nccl::Comm,
                      cudaStream_t) {
      return note(fmt::format("all_reduce {} from {} to {}", count, place(from), place(to)));
    };
    l.all_gather = [](const void* from, void* to, std::size_t count, nccl::DataType, nccl::Comm,
                      cudaStream_t) {
      return note(fmt::format("all_gather {} from {} to {}", count, place(from), place(to)));
    };
    l.reduce_scatter = [](const void* from, void* to, std::size_t count, nccl::DataType, nccl::RedOp,
                          nccl::Comm, cudaStream_t) {
      return note(fmt::format("reduce_scatter {} from {} to {}", count, place(from), place(to)));
    };
    l.broadcast = [](const void* from, void* to, std::size_t count, nccl::DataType, int root, nccl::Comm,
                     cudaStream_t) {
      return note(fmt::format("broadcast {} of {} from {} to {}", count, root, place(from), place(to)));
    };
    l.reduce = [](const void* from, void* to, std::size_t count, nccl::DataType, nccl::RedOp, int root,
                  nccl::Comm, cudaStream_t) {
      return note(fmt::format("reduce {} for {} from {} to {}", count, root, place(from), place(to)));
    };
    l.send = [](const void* from, std::size_t count, nccl::DataType, int peer, nccl::Comm, cudaStream_t) {
      return note(fmt::format("send {} to rank {} from {}", count, peer, place(from)));
    };
    l.recv = [](void* to, std::size_t count, nccl::DataType, int peer, nccl::Comm, cudaStream_t) {
      return note(fmt::format("receive {} of rank {} to {}", count, peer, place(to)));
    };
    return l;
  }();
  return library;
}

/// What `submit` asks rank 1 of 3 for.
template <class Way = Collectives, class Submit, class... More>
Lines calls_of(const Submit& submit, const More&... more) {
  const Member own{.ranks = 3, .index = 1};
  const Way way(logging(), own, more...);
  lines.clear();
  submit(way);
  return lines;
}

DeviceTransfer of(std::int64_t elements, std::ptrdiff_t from, std::ptrdiff_t to) {
  return {.dtype = core::DType::f32, .from = element(from), .to = element(to), .elements = elements};
}

TEST(NcclCollectives, PartsOfOneSizeAreOneCallAndOthersOneForEachRank) {
  const DeviceTransfers whole = {of(12, 0, 100), of(7, 200, 300)};
  EXPECT_EQ(calls_of([&](const Collectives& c) { c.all_gather(whole, nullptr); }),
            (Lines{"all_gather 4 from 0 to 100", "broadcast 3 of 0 from 300 to 300",
                   "broadcast 3 of 1 from 200 to 303", "broadcast 1 of 2 from 306 to 306", "end"}));
  EXPECT_EQ(calls_of([&](const Collectives& c) { c.reduce_scatter(whole, nullptr); }),
            (Lines{"reduce_scatter 4 from 0 to 100", "reduce 3 for 0 from 200 to 300",
                   "reduce 3 for 1 from 203 to 300", "reduce 1 for 2 from 206 to 300", "end"}));
  EXPECT_EQ(calls_of([&](const Collectives& c) { EXPECT_FALSE(c.add_scattered(whole, nullptr)); }), Lines{});
}

TEST(NcclCollectives, NobodySendsWhatIsNotThere) {
  EXPECT_EQ(calls_of([](const Collectives& c) { c.all_gather({of(1, 0, 100)}, nullptr); }),
            (Lines{"broadcast 1 of 0 from 100 to 100", "end"}));
}

TEST(NcclCollectives, ARingPassesBytesToTheNextRank) {
  EXPECT_EQ(calls_of([](const Collectives& c) { c.pass_on({of(5, 0, 100)}, nullptr); }),
            (Lines{"send 20 to rank 2 from 0", "receive 20 of rank 0 to 100", "end"}));
}

TEST(NcclCollectives, CopiesLeaveSumsOfFewElementsToNccl) {
  const std::unique_ptr<RankMemory> none;
  const DeviceTransfers few = {of(15, 0, 0), of(1, 40, 40)};
  EXPECT_EQ(calls_of<CopyEngine>([&](const Collectives& c) { c.all_reduce(few, nullptr); }, none),
            (Lines{"all_reduce 15 from 0 to 0", "all_reduce 1 from 40 to 40", "end"}));
}

TEST(NcclCollectives, WhatNcclCannotAddUpIsNamed) {
  EXPECT_THROW(type_of(core::DType::f8), core::Unavailable);
}

}  // namespace
}  // namespace rooflm::backends::cuda
