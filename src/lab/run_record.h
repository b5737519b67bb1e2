// The parts of a run record that all commands that measure steps write.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/provider.h"
#include "engines/engine.h"
#include "lab/point.h"
#include "program/program.h"
#include "record/writer.h"

namespace rooflm::lab {

/// A record of this command, with its environment in it unless `has_machine` is false; no GPU is opened to
/// find it out. Throws core::InputError when it cannot be made.
std::unique_ptr<record::Writer> open_record(const std::filesystem::path& path, const std::string& command,
                                            bool overwrite, bool has_machine = true);

/// A run with its whole configuration, with the status "running".
record::Run run_row(const Point& point);

/// What is known of a step before it runs: tokens, FLOP, memory, the datasheet's peak.
std::vector<record::Fact> step_facts(const Point& point, const program::Program& program);

/// Where GEMM algorithms came from; nothing if there was no choice. Prints a line if the autotune cache was
/// damaged.
std::optional<record::Fact> gemm_fact(const backends::GemmChoices& choices);

/// The samples of step number `step`: its phases, the whole, and until when the host had submitted it. `kind`
/// as in record::Sample.
void add_samples(std::vector<record::Sample>& rows, std::int64_t step, const engines::StepTimes& times,
                 const std::string& kind);

/// What measure::MachineLoad found; the text says so when it was much.
record::Fact others_fact(double others_share);

}  // namespace rooflm::lab
