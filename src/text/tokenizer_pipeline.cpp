// Recognises byte-level BPE among the tokenizers that a tokenizer.json can describe.
#include "text/tokenizer_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"
#include "text/bpe_split.h"

namespace rooflm::text {
namespace {

using Json = nlohmann::json;
using core::printable;

[[noreturn]] void fail_pipeline(const std::string& where, const std::string& what) {
  throw core::InputError(where + ": " + what);
}

/// The string under `key`, or "" when there is none.
std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// The truth under `key`, or `otherwise` when there is none.
bool flag_of(const Json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

/// A pattern that matches `text` itself.
std::string literal_pattern(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x80 || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                       (byte >= 'A' && byte <= 'Z');
    pattern += plain ? std::string(1, c) : fmt::format("\\x{{{:x}}}", byte);
  }
  return pattern;
}

std::string split_pattern(const Json& step, const std::string& where) {
  const auto behavior = text_of(step, "behavior");
  const bool invert = flag_of(step, "invert", false);
  // "Removed" of what does not match keeps the matches apart, as "Isolated" does where the pattern covers all
  // text.
  if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert)) {
    fail_pipeline(where, fmt::format("pre-tokenizer Split has behavior '{}'{}; rooflm knows 'Isolated'",
                                     printable(behavior), invert ? ", inverted" : ""));
  }
  const auto pattern = step.find("pattern");
  if (pattern != step.end() && pattern->is_object()) {
    if (auto regex = text_of(*pattern, "Regex"); !regex.empty()) return regex;
    if (const auto text = text_of(*pattern, "String"); !text.empty()) return literal_pattern(text);
  }
  fail_pipeline(where, "pre-tokenizer Split has no 'pattern' with a 'Regex' or a 'String'");
}

/// Appends the patterns of one step; counts the ByteLevel ones.
void add_step(const Json& step, const std::string& where, std::vector<std::string>& patterns,
              int& byte_levels) {
  const auto type = step.is_object() ? text_of(step, "type") : std::string();
  if (type == "ByteLevel") {
    ++byte_levels;
    if (flag_of(step, "add_prefix_space", false)) {
      fail_pipeline(
          where,
          "pre-tokenizer ByteLevel adds a blank before the text (add_prefix_space); rooflm cannot do that");
    }
    if (flag_of(step, "use_regex", true)) patterns.emplace_back(kGpt2Pattern);
  } else if (type == "Split") {
    patterns.push_back(split_pattern(step, where));
  } else if (type == "Digits") {
    patterns.emplace_back(flag_of(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
  } else if (type == "Sequence") {
    const auto steps = step.find("pretokenizers");
    if (steps == step.end() || !steps->is_array())
      fail_pipeline(where, "pre-tokenizer Sequence has no 'pretokenizers'");
    for (const auto& inner : *steps) add_step(inner, where, patterns, byte_levels);
  } else {
    fail_pipeline(
        where,
        fmt::format("pre-tokenizer '{}': rooflm reads byte-level BPE only (ByteLevel, alone or with Split or "
                    "Digits before it)",
                    printable(type)));
  }
}

}  // namespace

void check_is_byte_level_bpe(const Json& file, const std::string& where) {
  const auto model = file.is_object() ? file.find("model") : file.end();
  if (model == file.end() || !model->is_object())
    fail_pipeline(where, "no tokenizer.json: it has no object 'model'");
  const auto type = text_of(*model, "type");
  if (type != "BPE" && !(type.empty() && model->contains("merges"))) {
    fail_pipeline(
        where, fmt::format("tokenizer of kind '{}'; rooflm reads byte-level BPE (GPT-2's and Llama 3's kind)",
                           printable(type)));
  }
  if (flag_of(*model, "byte_fallback", false)) {
    fail_pipeline(
        where,
        "BPE with byte fallback, a SentencePiece tokenizer (Llama 2's kind); rooflm reads byte-level BPE");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_of(*model, affix).empty()) {
      fail_pipeline(where, fmt::format("BPE with '{}' ('{}'); rooflm reads byte-level BPE", affix,
                                       printable(text_of(*model, affix))));
    }
  }
}

bool wants_nfc(const Json& file, const std::string& where) {
  const auto normalizer = file.find("normalizer");
  if (normalizer == file.end() || normalizer->is_null()) return false;
  const auto kind = normalizer->is_object() ? text_of(*normalizer, "type") : core::shown(*normalizer);
  if (kind == "NFC") return true;
  if (kind == "Sequence" && normalizer->value("normalizers", Json()) == Json::array()) return false;
  fail_pipeline(where, fmt::format("normalizer '{}': rooflm encodes text as it is and cannot normalize",
                                   printable(kind)));
}

TokenizerKind kind_of_class(std::string_view name, const std::string& where) {
  constexpr std::array kKinds{
      TokenizerKind{kGpt2Class, kGpt2Pattern}, TokenizerKind{"RobertaTokenizer", kGpt2Pattern},
      TokenizerKind{"CodeGenTokenizer", kGpt2Pattern}, TokenizerKind{"WhisperTokenizer", kGpt2Pattern},
      TokenizerKind{"Qwen2Tokenizer", kQwen2Pattern, true}};
  std::string_view bare = name;
  if (bare.ends_with("Fast")) bare.remove_suffix(std::string_view("Fast").size());
  const auto found = std::ranges::find(kKinds, bare, &TokenizerKind::name);
  if (found != kKinds.end()) return *found;
  fail_pipeline(
      where,
      fmt::format("the tokenizer's class is '{}', and vocab.json does not say how that splits text; save "
                  "its tokenizer.json (transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained)",
                  printable(name)));
}

std::vector<std::string> split_patterns(const Json& file, const std::string& where) {
  const auto step = file.find("pre_tokenizer");
  if (step == file.end() || step->is_null()) {
    fail_pipeline(where,
                  "no pre-tokenizer; a byte-level BPE has ByteLevel (is this a SentencePiece tokenizer?)");
  }
  std::vector<std::string> patterns;
  int byte_levels = 0;
  add_step(*step, where, patterns, byte_levels);
  if (byte_levels != 1) {
    fail_pipeline(where, fmt::format("{} ByteLevel pre-tokenizers; a byte-level BPE has one", byte_levels));
  }
  return patterns;
}

}  // namespace rooflm::text
