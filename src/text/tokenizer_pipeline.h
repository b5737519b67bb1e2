// What a tokenizer.json says besides vocabulary and merges: which kind it is, and how it cuts text into
// words.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rooflm::text {

/// Throws core::InputError that says which kind of tokenizer `file` (a parsed tokenizer.json) holds when it
/// is none that byte-level BPE covers: another model than BPE, byte fallback or word affixes, a normalizer.
void check_is_byte_level_bpe(const nlohmann::json& file, const std::string& where);

/// The splitting patterns of its pre-tokenizer, in order: ByteLevel (GPT-2's pattern, unless use_regex is
/// false), Split by a regular expression or a string, Digits, and sequences of them with one ByteLevel.
/// Throws core::InputError that names the part when it is another.
std::vector<std::string> split_patterns(const nlohmann::json& file, const std::string& where);

}  // namespace rooflm::text
