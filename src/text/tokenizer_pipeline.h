// What a tokenizer.json says besides vocabulary and merges: which kind it is, and how it cuts text into
// words.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_model.h"

namespace rooflm::text {

/// Throws core::InputError that says which kind of tokenizer `file` (a parsed tokenizer.json) holds when it
/// is no BPE that is known here: another model, or word affixes.
void check_is_bpe(const nlohmann::json& file, const std::string& where);

/// The rules of BPE over characters with byte fallback (Llama 2's kind); nothing for byte-level BPE. Throws
/// core::InputError that names a normalizer or pre-tokenizer that is another than marking blanks.
std::optional<CharacterRules> character_rules(const nlohmann::json& file, const std::string& where);

/// How BPE over characters cuts its text, with blanks marked: before every mark where the file says so.
/// Otherwise text is one word; where no token has a mark behind another character, it is cut there all the
/// same, which changes no token and makes words that repeat. No pattern: one word.
std::vector<std::string> mark_patterns(const nlohmann::json& file, const BpeModel& model);

/// The name of the token that its post-processor sets before a text; "" without one.
std::string beginning_token(const nlohmann::json& file);

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
