// What a run of `rooflm generate` measured: the time of every token.
#pragma once

#include <optional>
#include <span>

namespace rooflm::report {

/// Kind of the run, and the phase of its samples: sample 0 is the first token, from asking for it.
inline constexpr const char* kGeneration = "generate";
inline constexpr const char* kTokenPhase = "token";
/// The fact that says how long the prompt was.
inline constexpr const char* kPromptTokens = "prompt_tokens";

/// Tokens per second after the first one; nothing where there are none.
std::optional<double> token_rate(std::span<const double> token_s);

}  // namespace rooflm::report
