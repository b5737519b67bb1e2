// Recognises BPE over bytes and over characters among the tokenizers that a tokenizer.json can describe.
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

void check_is_bpe(const Json& file, const std::string& where) {
  const auto model = file.is_object() ? file.find("model") : file.end();
  if (model == file.end() || !model->is_object())
    fail_pipeline(where, "no tokenizer.json: it has no object 'model'");
  const auto type = text_of(*model, "type");
  if (type != "BPE" && !(type.empty() && model->contains("merges"))) {
    fail_pipeline(
        where,
        fmt::format("tokenizer of kind '{}'; rooflm reads BPE (GPT-2's, Llama 2's and Llama 3's kinds)",
                    printable(type)));
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_of(*model, affix).empty()) {
      fail_pipeline(where, fmt::format("BPE with '{}' ('{}'), which rooflm does not know", affix,
                                       printable(text_of(*model, affix))));
    }
  }
}

namespace {

/// The parts of a normalizer, pre-tokenizer or decoder: itself, or those of a sequence under `key`.
std::vector<Json> parts_of(const Json& file, const char* name, const char* key) {
  const auto found = file.find(name);
  if (found == file.end() || !found->is_object()) return {};
  if (text_of(*found, "type") != "Sequence") return {*found};
  const auto parts = found->find(key);
  return parts != found->end() && parts->is_array() ? parts->get<std::vector<Json>>() : std::vector<Json>();
}

std::string string_pattern(const Json& part) {
  const auto pattern = part.find("pattern");
  return pattern != part.end() && pattern->is_object() ? text_of(*pattern, "String") : std::string();
}

/// What a Metaspace sets before a text; old files have a truth instead of a scheme.
std::string prepend_scheme(const Json& metaspace) {
  std::string scheme = text_of(metaspace, "prepend_scheme");
  if (!scheme.empty()) return scheme;
  return flag_of(metaspace, "add_prefix_space", true) ? "always" : "never";
}

}  // namespace

std::optional<CharacterRules> character_rules(const Json& file, const std::string& where) {
  if (!flag_of(file["model"], "byte_fallback", false)) return std::nullopt;
  using Prefix = CharacterRules::Prefix;
  CharacterRules rules;
  bool marks_blanks = false;
  const auto require_mark = [&](const std::string& mark) {
    if (mark == kBlankMark) return;
    fail_pipeline(where,
                  fmt::format("blanks are marked by '{}'; rooflm knows '{}'", printable(mark), kBlankMark));
  };
  for (const Json& part : parts_of(file, "normalizer", "normalizers")) {
    const std::string type = text_of(part, "type");
    if (type == "Prepend") {
      require_mark(text_of(part, "prepend"));
      rules.prefix = Prefix::each;
    } else if (type == "Replace" && string_pattern(part) == " ") {
      require_mark(text_of(part, "content"));
      marks_blanks = true;
    } else {
      fail_pipeline(where, fmt::format("normalizer '{}': rooflm marks blanks and cannot normalize otherwise",
                                       printable(type)));
    }
  }
  for (const Json& part : parts_of(file, "pre_tokenizer", "pretokenizers")) {
    const std::string type = text_of(part, "type");
    if (type == "Metaspace") {
      require_mark(text_of(part, "replacement"));
      marks_blanks = true;
      const std::string scheme = prepend_scheme(part);
      if (scheme == "always") rules.prefix = Prefix::each_without;
      if (scheme == "first") rules.prefix = Prefix::first_without;
    } else if (!(type == "Split" && string_pattern(part) == " " && marks_blanks)) {  // no blanks are left
      fail_pipeline(where,
                    fmt::format("pre-tokenizer '{}' of a BPE with byte fallback: rooflm knows Metaspace",
                                printable(type)));
    }
  }
  if (!marks_blanks) fail_pipeline(where, "a BPE with byte fallback that does not mark blanks");
  for (const Json& part : parts_of(file, "decoder", "decoders")) {
    const std::string type = text_of(part, "type");
    const bool strips =
        type == "Strip" && text_of(part, "content") == " " && part.value("start", Json(0)) == 1;
    if (strips || (type == "Metaspace" && prepend_scheme(part) != "never")) rules.strips_blank = true;
  }
  return rules;
}

std::vector<std::string> mark_patterns(const Json& file, const BpeModel& model) {
  for (const Json& part : parts_of(file, "pre_tokenizer", "pretokenizers")) {
    if (text_of(part, "type") == "Metaspace" && flag_of(part, "split", true))
      return {R"(\x{2581}[^\x{2581}]*|[^\x{2581}]+)"};
  }
  const auto has_mark_behind = [](std::string_view token) {
    while (token.starts_with(kBlankMark)) token.remove_prefix(kBlankMark.size());
    return token.find(kBlankMark) != std::string_view::npos;
  };
  if (model.ignore_merges || std::ranges::any_of(model.spellings, has_mark_behind)) return {};
  return {R"(\x{2581}*[^\x{2581}]+|\x{2581}+)"};
}

std::string beginning_token(const Json& file) {
  for (const Json& part : parts_of(file, "post_processor", "processors")) {
    if (text_of(part, "type") != "TemplateProcessing") continue;
    const auto single = part.find("single");
    if (single == part.end() || !single->is_array() || single->empty()) return {};
    const Json& first = single->front();
    const auto token = first.is_object() ? first.find("SpecialToken") : first.end();
    return token != first.end() && token->is_object() ? text_of(*token, "id") : std::string();
  }
  return {};
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
