// Which part of a JAX program a kernel worked for, and what it had to do, by the instructions that XLA made
// of it. Private to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "foreign/foreign_run.h"
#include "foreign/learned_steps.h"
#include "inject/stream_format.h"
#include "record/rows.h"

namespace rooflm::foreign {

struct XlaOps {
  std::vector<record::Op> ops;            ///< one for each phase and name scope
  std::vector<OpWork> work;               ///< of one execution of each program
  std::vector<record::KernelWork> works;  ///< one for each instruction that ran
  /// Of each launch.
  std::vector<std::optional<std::int64_t>> op_of, work_of;
};

/// Facts "hlo N" name the programs, "hlo N M" their instructions in the order of their schedule. Kernels that
/// are launched while a range "XlaModule:#hlo_module=NAME" is open on their thread are one execution of a
/// program of that name: its instructions and they are aligned, in order, by names that are equal but for a
/// number at their end (identical instructions share one kernel), and calls of libraries with kernels of
/// other names. `launches` in the order of their calls. Empty where there are no such facts.
XlaOps find_xla_ops(const std::vector<inject::Row>& rows,
                    const std::unordered_map<std::uint32_t, std::string>& texts,
                    const std::map<std::string, std::string>& facts, std::span<const Launch> launches);

/// "layers.3.attn" of "jit(step)/transpose(jvp(Model))/layers_3/attn/dot_general"; "" without name scopes.
std::string path_of_name_scopes(const std::string& op_name);

}  // namespace rooflm::foreign
