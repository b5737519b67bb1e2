// What a run of `rooflm generate` measured, and steps with `--phase prefill` or `decode`.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include "report/model/run_data.h"

namespace rooflm::report {

/// Kind of the run, and the phases of its samples: a step adds a token to each unfinished text.
inline constexpr const char* kGeneration = "generate";
inline constexpr const char* kTokenPhase = "token";  ///< with choosing tokens; sample 0 is the first token's
/// Of the engine: where texts were read from the beginning, and where they were read on.
inline constexpr const char* kPrefillPhase = "prefill";
inline constexpr const char* kDecodePhase = "decode";
inline constexpr std::array kGenerationPhases = {kPrefillPhase, kDecodePhase};
/// Facts: total length of the prompts, number of texts, tokens of all texts.
inline constexpr const char* kPromptTokens = "prompt_tokens";
inline constexpr const char* kTexts = "texts";
inline constexpr const char* kNewTokens = "new_tokens";
/// Time for making engines.
inline constexpr const char* kSetupS = "setup_s";

/// The answer of the study `decode`: tokens per second of each run, and how close it is to its roof.
std::string answer_decode(const RecordSet& set);

/// Steps per second after the first one; nothing where there are none.
std::optional<double> token_rate(std::span<const double> token_s);

}  // namespace rooflm::report
