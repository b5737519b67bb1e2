// What one operator of PyTorch has to compute and to move, by its shapes. Private to the room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::foreign {

/// A tensor that an operator takes or gives, or all tensors of one argument added up.
struct TensorNote {
  std::string dtype{};  ///< of PyTorch: "bfloat16"
  std::vector<std::int64_t> shape{};
  std::int64_t bytes = 0;  ///< of its memory: less than its elements where some are the same one
  bool is_list = false;    ///< an argument of several tensors: `shape` is their elements in all

  [[nodiscard]] double elements() const;
  [[nodiscard]] std::string shape_text() const;  ///< "[512,768]"
};

/// Calls of one operator with the same shapes in one module of a step, as the recorder's Python module notes
/// them.
struct OperatorNote {
  std::string op{};  ///< "aten::addmm"
  std::string phase{}, module{};
  bool is_recomputed = false, is_causal = false, has_tf32 = false;
  std::int64_t count = 1;
  std::vector<TensorNote> in{}, out{};
  double needed = 1;                   ///< of attention with a mask: share of the scores
  std::int64_t cold_bytes = 0;         ///< of one call's inputs: no cache holds them any more
  std::vector<std::uint32_t> calls{};  ///< their numbers, as ranges of the stream have them
};

/// Reads {"op":"aten::mm","phase":"forward","module":"h.0","n":2,"in":[["bfloat16",[8,16]],...],"out":[...]};
/// nothing where it is something else or its numbers cannot be.
std::optional<OperatorNote> read_operator(std::string_view text);

/// What one call does, by the rules of program/ops: a multiply-add is 2 flop, attention is counted in full.
struct OperatorWork {
  std::string dtype{};     ///< of the matrix product: "bf16", "tf32"; "" without one
  double matmul_flop = 0;  ///< counted
  double needed_flop = 0;  ///< of them those that cannot be left out: half of causal attention
  double elementwise_flop = 0;
  double bytes_read = 0, bytes_written = 0;
  double far_bytes = 0;  ///< of them, those that no cache can hold
};

/// What was noted of an operator, and what one of its calls does.
struct PricedNote {
  OperatorNote note{};
  OperatorWork work{};
};

/// Matrix products, convolutions and attention by their formulas; whatever only looks at memory in another
/// way costs nothing; everything else reads its inputs once and writes its outputs once, as do kernels of
/// Triton ("triton::NAME") and operators of distributed PyTorch. Nothing for those of others: what they read
/// is not known.
std::optional<OperatorWork> work_of(const OperatorNote& note);

}  // namespace rooflm::foreign
