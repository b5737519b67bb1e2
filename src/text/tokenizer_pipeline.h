// What a tokenizer.json says besides vocabulary and merges: which kind it is, and how it cuts text into
// words.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::text {

/// Throws core::InputError that says which kind of tokenizer `file` (a parsed tokenizer.json) holds when it
/// is none that byte-level BPE covers: another model than BPE, byte fallback or word affixes.
void check_is_byte_level_bpe(const nlohmann::json& file, const std::string& where);

/// Whether its normalizer is NFC; false if it has none. Throws core::InputError that names another.
bool wants_nfc(const nlohmann::json& file, const std::string& where);

/// The splitting patterns of its pre-tokenizer, in order: ByteLevel (GPT-2's pattern, unless use_regex is
/// false), Split by a regular expression or a string, Digits, and sequences of them with one ByteLevel.
/// Throws core::InputError that names the part when it is another.
std::vector<std::string> split_patterns(const nlohmann::json& file, const std::string& where);

/// What the class of a tokenizer says where its files are a vocabulary and merges alone.
struct TokenizerKind {
  std::string_view name;     ///< the class in tokenizer_config.json, without "Fast"
  std::string_view pattern;  ///< how it splits text
  bool wants_nfc = false;
};
inline constexpr std::string_view kGpt2Class = "GPT2Tokenizer";
/// Throws core::InputError that names a class which is not known: its split would be a guess.
TokenizerKind kind_of_class(std::string_view name, const std::string& where);

}  // namespace rooflm::text
