// The roofline: the least time that an op can take on a machine with measured ceilings.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/program.h"
#include "record/rows.h"

namespace rooflm::perfmodel {

/// One level of the memory hierarchy, for all threads together.
struct MemoryLevel {
  std::string name;           ///< "L1", "L2", "L3", "DRAM"
  double byte_per_s = 0;      ///< the fastest of the loops measured there
  double capacity_bytes = 0;  ///< 0 for the outermost: no end
};

/// What a device can do at best.
struct Machine {
  std::map<std::string, double> flop_per_s;  ///< of matrix products, by dtype
  std::vector<MemoryLevel> levels;           ///< from the innermost out

  /// From the ceilings of `device` measured with `threads` threads, and the capacities of its caches in bytes
  /// by level name. Where a level was measured with other numbers of threads only, it is left out.
  static Machine from_ceilings(const std::vector<record::Ceiling>& ceilings, const std::string& device,
                               int threads, const std::map<std::string, double>& capacity_bytes);
};

/// The roof of an op or of a group of them.
struct Roof {
  double matmul_s = 0;  ///< needed matrix-product flop / rate
  double memory_s = 0;  ///< the slowest level that the bytes must pass
  double roof_s = 0;    ///< the larger of both; of a group: the sum over its ops
  std::string bound;    ///< "matmul fp32", "DRAM", "L2"; of a group: what most of roof_s is
};

/// A lower bound of the time of one op (Williams, Waterman and Patterson, "Roofline", 2009, for each level of
/// the hierarchy): max(flop / rate, max over levels of (bytes - what inner levels hold) / bandwidth). What an
/// inner level can hold may be there already from the op before, so it is not counted against outer ones. Of
/// causal flash attention only the half below the diagonal, (T + 1) / 2T, is needed. Elementwise arithmetic
/// has no roof of its own here.
Roof roof_of(const Machine& machine, const program::Program& program, const program::Op& op);

/// Roofs of all ops of a program that runs again and again. A weight that one op alone reads (decoding and
/// evaluating: all of a layer's) is read again only after all the others: of W bytes of such weights, caches
/// of C bytes keep at most C, so the share 1 - C / W of each op's comes from the outermost memory.
std::vector<Roof> roofs_of(const Machine& machine, const program::Program& program);

/// FLOP of the matmuls of a step that cannot be left out: of causal flash attention half of what is counted.
double needed_matmul_flop(const program::Program& program);

/// Work whose kind is known, but not its program: of somebody else's op.
struct Work {
  std::string dtype{};     ///< of the matrix products
  double needed_flop = 0;  ///< of them, those that cannot be left out
  double bytes = 0;        ///< read and written
  double far_bytes = 0;    ///< of them, those that no cache can hold
};
Roof roof_of(const Machine& machine, const Work& work);

/// A roof of the op of that number.
struct OpRoof {
  std::int64_t op = 0;
  std::string phase{};
  Roof roof{};
  bool is_in_sum = true;  ///< not beside ops of other phases
};
/// Predictions for a record: 'roof_s' of "op:N", "phase:NAME" and "step". Several of one op add up; they are
/// one after the other.
std::vector<record::Prediction> predict_roofs(const Machine& machine, const std::vector<OpRoof>& roofs);

/// The same of a program.
std::vector<record::Prediction> predict_roofs(const Machine& machine, const program::Program& program);

}  // namespace rooflm::perfmodel
