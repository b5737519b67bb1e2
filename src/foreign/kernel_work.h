// What single kernels have to do: the calls of operators, shared by the kernels that they launch. Private to
// the room.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "foreign/operator_work.h"
#include "record/rows.h"

namespace rooflm::foreign {

/// A kernel, a copy or a fill that ran.
struct Execution {
  std::optional<std::int64_t> op{};  ///< module and phase
  std::uint32_t name = 0;
  std::uint32_t call = 0;    ///< of an operator, within which it was launched or captured; 0: none was noted
  std::uint32_t replay = 0;  ///< of a graph: the launch, 0 for others
  std::size_t step = 0;
  std::uint64_t duration_ns = 0;
};

/// How much of a product a kernel of that name does beside others of its call: those of the highest rank (2:
/// it is named after one; 0: it copies, or sums parts) do all of it.
int rank_of(std::string_view name);

struct KernelWorks {
  std::vector<record::KernelWork> works;
  std::vector<std::optional<std::int64_t>> of;  ///< of each execution
};

/// `executions` in the order of their launches. A call's bytes are shared by its kernels by their time, its
/// FLOP by those of them whose names say that they multiply, else by those that are more than copies and sums
/// of parts. In a step without notes an op that launches the same kernels does the same; the kernels of one
/// that launches others share all that it has to do.
KernelWorks share_work(std::span<const PricedNote> notes, std::span<const Execution> executions,
                       const std::function<std::string_view(std::uint32_t)>& name_of);

}  // namespace rooflm::foreign
