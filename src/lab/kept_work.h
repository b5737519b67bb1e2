// FLOP and bytes of a program that generates text, and their least time.
#pragma once

#include <cstdint>
#include <string>

#include "perfmodel/roofline.h"
#include "program/program.h"
#include "record/writer.h"

namespace rooflm::lab {

/// Bytes of weights and of kept keys and values that one run of the program reads: each once, of tables that
/// rows are taken from those rows. They come from memory, as far as no cache holds them since the run before;
/// activations may stay in caches.
double resident_bytes(const program::Program& program);

/// Adds the facts NAME_flop (of matmuls) and NAME_bytes (resident_bytes) to a run, and where the
/// machine has ceilings the prediction roof_s of "phase:NAME": the larger of the matmuls' time and that of
/// those bytes.
void write_kept_work(record::Writer& record, std::int64_t run, const std::string& name,
                     const program::Program& program, const perfmodel::Machine& machine);

}  // namespace rooflm::lab
