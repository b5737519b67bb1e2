// Reads and writes tokenizer files, and says what is wrong with one.
#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/printable.h"
#include "text/bpe_utf8.h"
#include "text/tokenizer_pipeline.h"

namespace rooflm::text {
namespace {

using Json = nlohmann::json;
using core::printable;
using Ids = std::unordered_map<std::string, std::uint32_t>;  // of tokens as the file spells them

constexpr std::string_view kEndOfText = "<|endoftext|>";

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw core::InputError(where + ": " + what);
}

std::uint32_t id_of(const Json& value, std::string_view name, const std::string& where) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() >= kMaxVocab) {
    fail(where, fmt::format("token '{}' has id {}; expected an integer from 0 to {}", printable(name),
                            core::shown(value), kMaxVocab - 1));
  }
  return value.get<std::uint32_t>();
}

void set_token(BpeModel& model, std::uint32_t id, std::string bytes, const std::string& where) {
  if (id >= model.tokens.size()) model.tokens.resize(id + std::size_t{1});
  if (!model.tokens[id].empty() && model.tokens[id] != bytes) {
    fail(where,
         fmt::format("id {} belongs to '{}' and to '{}'", id, printable(model.tokens[id]), printable(bytes)));
  }
  model.tokens[id] = std::move(bytes);
}

void read_added_tokens(BpeModel& model, const Json& file, const std::string& where) {
  if (!file.contains("added_tokens")) return;
  const Json& list = file["added_tokens"];
  if (!list.is_array()) fail(where, "'added_tokens' is no list");
  for (const auto& entry : list) {
    if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string() ||
        !entry.contains("id")) {
      fail(where, "an entry of 'added_tokens' has no 'id' and 'content': " + core::shown(entry));
    }
    const auto name = entry["content"].get<std::string>();
    if (name.empty()) fail(where, "an entry of 'added_tokens' has an empty 'content'");
    const auto id = id_of(entry["id"], name, where);
    const bool special =
        entry.contains("special") && entry["special"].is_boolean() && entry["special"].get<bool>();
    set_token(model, id, name, where);
    model.added.push_back({name, id, !special});
  }
}

/// The bytes of a token of BPE over characters: those that it names, or its characters with blanks.
std::string unmarked(std::string_view spelling) {
  unsigned byte = 0;
  constexpr std::size_t kByteName = 6;  // "<0xE4>"
  if (spelling.size() == kByteName && spelling.starts_with("<0x") && spelling.ends_with('>')) {
    const char* const digits = spelling.data() + 3;
    if (std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2)
      return std::string(1, static_cast<char>(byte));
  }
  std::string bytes;
  while (!spelling.empty()) {
    const bool is_mark = spelling.starts_with(kBlankMark);
    bytes += is_mark ? ' ' : spelling.front();
    spelling.remove_prefix(is_mark ? kBlankMark.size() : 1);
  }
  return bytes;
}

void set_spelling(BpeModel& model, std::uint32_t id, const std::string& spelling) {
  if (id >= model.spellings.size()) model.spellings.resize(id + std::size_t{1});
  model.spellings[id] = spelling;
}

/// `vocab` maps spellings to ids. Added tokens stand for themselves.
Ids read_vocab(BpeModel& model, const Json& vocab, const std::string& where) {
  if (!vocab.is_object() || vocab.empty()) fail(where, "the vocabulary is not an object of tokens and ids");
  std::unordered_map<std::string_view, std::uint32_t> added;
  for (const auto& token : model.added) added.emplace(token.name, token.id);
  Ids ids;
  ids.reserve(vocab.size());
  for (const auto& [spelling, value] : vocab.items()) {
    const auto id = id_of(value, spelling, where);
    ids.emplace(spelling, id);
    if (model.characters) set_spelling(model, id, spelling);
    const auto own = added.find(spelling);
    if (own != added.end() && own->second == id) continue;
    if (model.characters) {
      if (spelling.empty()) fail(where, fmt::format("the token with id {} is empty", id));
      set_token(model, id, unmarked(spelling), where);
      continue;
    }
    auto bytes = unspell_bytes(spelling);
    if (!bytes || bytes->empty()) {
      fail(where,
           fmt::format("token '{}' (id {}) is not spelled in the characters of byte-level BPE; is this the "
                       "vocabulary of another kind of tokenizer, SentencePiece say?",
                       printable(spelling), id));
    }
    set_token(model, id, std::move(*bytes), where);
  }
  return ids;
}

void add_merge(BpeModel& model, const Ids& ids, const std::string& left, const std::string& right,
               const std::string& where) {
  const auto l = ids.find(left);
  const auto r = ids.find(right);
  if (l == ids.end() || r == ids.end()) {
    fail(where, fmt::format("merge {} ('{}' + '{}'): '{}' is not in the vocabulary", model.merges.size(),
                            printable(left), printable(right), printable(l == ids.end() ? left : right)));
  }
  model.merges.emplace_back(l->second, r->second);
}

/// "a b", one blank between two tokens.
void add_merge_line(BpeModel& model, const Ids& ids, std::string_view line, const std::string& where) {
  const auto blank = line.find(' ');
  if (blank == std::string_view::npos || blank == 0 || blank + 1 == line.size() ||
      line.find(' ', blank + 1) != std::string_view::npos) {
    fail(where, fmt::format("merge {} is '{}'; expected two tokens with one blank between",
                            model.merges.size(), printable(line)));
  }
  add_merge(model, ids, std::string(line.substr(0, blank)), std::string(line.substr(blank + 1)), where);
}

void read_merges(BpeModel& model, const Ids& ids, const Json& list, const std::string& where) {
  if (!list.is_array()) fail(where, "'model.merges' is no list");
  for (const auto& merge : list) {
    if (merge.is_string()) {
      add_merge_line(model, ids, merge.get_ref<const std::string&>(), where);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      add_merge(model, ids, merge[0].get<std::string>(), merge[1].get<std::string>(), where);
    } else {
      fail(where, fmt::format("merge {} is {}; expected \"a b\" or [\"a\", \"b\"]", model.merges.size(),
                              core::shown(merge)));
    }
  }
}

std::shared_ptr<const BpeModel> from_tokenizer_json(const Json& file, std::string_view text,
                                                    const std::string& where) {
  check_is_bpe(file, where);
  auto model = std::make_shared<BpeModel>();
  model->characters = character_rules(file, where);
  model->wants_nfc = !model->characters && wants_nfc(file, where);
  read_added_tokens(*model, file, where);
  const Json& bpe = file["model"];
  for (const char* key : {"vocab", "merges"}) {
    if (!bpe.contains(key)) fail(where, fmt::format("'model.{}' is missing", key));
  }
  const Ids ids = read_vocab(*model, bpe["vocab"], where);
  read_merges(*model, ids, bpe["merges"], where);
  const auto ignore = bpe.find("ignore_merges");
  model->ignore_merges = ignore != bpe.end() && ignore->is_boolean() && ignore->get<bool>();
  model->source_json = text;
  model->spellings.resize(model->characters ? model->tokens.size() : 0);
  model->index(where);
  model->rules =
      SplitRules(model->characters ? mark_patterns(file, *model) : split_patterns(file, where), where);
  if (const std::string begin = beginning_token(file); !begin.empty()) {
    const auto token = std::ranges::find(model->added, begin, &AddedToken::name);
    if (token != model->added.end()) model->bos = token->id;
  }
  return model;
}

/// What a vocab.json does not say: how text is split, and which tokens were added. tokenizer_config.json
/// beside it says so; GPT-2's own files have none.
void read_tokenizer_config(BpeModel& model, const std::filesystem::path& directory,
                           const std::string& where) {
  const auto path = directory / "tokenizer_config.json";
  TokenizerKind kind = kind_of_class(kGpt2Class, where);
  if (std::filesystem::exists(path)) {
    const core::MappedFile file(path);
    const Json config = core::parse_json_object(file.text(), path.string(), "the tokenizer's configuration");
    const Json name = config.value("tokenizer_class", Json(kGpt2Class));
    if (!name.is_string()) fail(path.string(), "'tokenizer_class' is " + core::shown(name));
    kind = kind_of_class(name.get<std::string>(), path.string());
    if (config.value("add_prefix_space", Json(false)) == true) {
      fail(path.string(), "add_prefix_space: rooflm cannot add a blank before the text");
    }
    const Json by_id = config.value("added_tokens_decoder", Json::object());
    if (!by_id.is_object()) fail(path.string(), "'added_tokens_decoder' is " + core::shown(by_id));
    Json added = Json::array();
    for (const auto& [id, token] : by_id.items()) {
      added.push_back(token);
      if (token.is_object()) added.back()["id"] = core::parse_json(id, path.string(), "an added token's id");
    }
    read_added_tokens(model, {{"added_tokens", added}}, path.string());
  }
  model.rules = SplitRules({std::string(kind.pattern)}, where);
  model.wants_nfc = kind.wants_nfc;
}

std::shared_ptr<const BpeModel> from_vocab_and_merges(const Json& vocab, const std::string& where,
                                                      const std::filesystem::path& merges_path) {
  auto model = std::make_shared<BpeModel>();
  read_tokenizer_config(*model, core::folder_of(where), where);
  const auto is_end = [](const AddedToken& token) { return token.name == kEndOfText; };
  if (vocab.is_object() && vocab.contains(kEndOfText) && std::ranges::none_of(model->added, is_end)) {
    const std::string name(kEndOfText);
    model->added.push_back({name, id_of(vocab[name], name, where), false});
    set_token(*model, model->added.back().id, name, where);
  }
  const Ids ids = read_vocab(*model, vocab, where);
  const core::MappedFile merges(merges_path);
  std::string_view rest = merges.text();
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const auto end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    add_merge_line(*model, ids, line, fmt::format("{}: line {}", merges_path.string(), number));
  }
  model->index(where);
  return model;
}

/// merges.txt or vocab.bpe in `directory`, or an empty path.
std::filesystem::path find_merges(const std::filesystem::path& directory) {
  for (const char* name : {"merges.txt", "vocab.bpe"}) {
    if (std::filesystem::exists(directory / name)) return directory / name;
  }
  return {};
}

/// A file of a tokenizer in a format that is not read, or "".
std::string unread_tokenizer(const std::filesystem::path& directory) {
  constexpr std::array kNames{"tokenizer.model", "tekken.json", "spiece.model", "sentencepiece.bpe.model",
                              "vocab.txt"};
  for (const char* name : kNames) {
    if (std::filesystem::exists(directory / name)) return name;
  }
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (entry.path().extension() == ".tiktoken") return core::printable(entry.path().filename().string());
  }
  return "";
}

/// The tokenizer file in a directory.
std::filesystem::path find_in_directory(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / "tokenizer.json")) return directory / "tokenizer.json";
  for (const char* name : {"vocab.json", "encoder.json"}) {
    if (std::filesystem::exists(directory / name)) return directory / name;
  }
  const std::string unread = unread_tokenizer(directory);
  if (!unread.empty())
    fail(directory.string(),
         fmt::format("{} is not read, only tokenizer.json and vocab.json with merges.txt: transformers' "
                     "AutoTokenizer.from_pretrained(..).save_pretrained(..) writes a tokenizer.json",
                     unread));
  fail(directory.string(), "no tokenizer.json and no vocab.json with merges.txt in this directory");
}

/// "\"Ġthe\": 262"
std::string vocab_entry(const BpeModel& model, std::uint32_t id) {
  for (const auto& token : model.added) {
    if (token.id == id) return fmt::format("{}: {}", Json(token.name).dump(), id);
  }
  return fmt::format("{}: {}", Json(spell_bytes(model.tokens[id])).dump(), id);
}

Json pipeline(const BpeModel& model) {
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", model.rules.is_gpt2()}};
  Json pre_tokenizer = byte_level;
  if (!model.rules.is_gpt2()) {
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", Json::array()}};
    for (const auto& pattern : model.rules.patterns()) {
      pre_tokenizer["pretokenizers"].push_back({{"type", "Split"},
                                                {"pattern", {{"Regex", pattern}}},
                                                {"behavior", "Isolated"},
                                                {"invert", false}});
    }
    pre_tokenizer["pretokenizers"].push_back(byte_level);
  }
  Json added = Json::array();
  for (const auto& token : model.added) {
    added.push_back({{"id", token.id},
                     {"content", token.name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", !token.always}});
  }
  return {{"added_tokens", added}, {"pre_tokenizer", pre_tokenizer}, {"byte_level", byte_level}};
}

}  // namespace

std::shared_ptr<const BpeModel> read_tokenizer(const std::filesystem::path& path) {
  std::error_code error;
  const auto source = std::filesystem::is_directory(path, error) ? find_in_directory(path) : path;
  const core::MappedFile file(source);
  const std::string where = source.string();
  const Json parsed =
      core::parse_json(file.text(), where, "the tokenizer (a tokenizer.json or a vocab.json)");
  if (parsed.is_object() && parsed.contains("model") && parsed["model"].is_object()) {
    return from_tokenizer_json(parsed, file.text(), where);
  }
  const auto merges =
      find_merges(source.has_parent_path() ? source.parent_path() : std::filesystem::path("."));
  if (merges.empty()) {
    fail(where,
         "no object 'model', so no tokenizer.json, and no merges.txt beside it, so no vocab.json either");
  }
  return from_vocab_and_merges(parsed, where, merges);
}

std::string tokenizer_json(const BpeModel& model) {
  if (!model.source_json.empty()) return model.source_json;
  const Json parts = pipeline(model);
  std::string out = fmt::format(
      "{{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": {},\n"
      "  \"normalizer\": {},\n  \"pre_tokenizer\": {},\n  \"post_processor\": null,\n  \"decoder\": {},\n"
      "  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": "
      "false,\n"
      "    \"byte_fallback\": false,\n    \"ignore_merges\": {},\n    \"vocab\": {{",
      parts["added_tokens"].dump(), model.wants_nfc ? R"({"type": "NFC"})" : "null",
      parts["pre_tokenizer"].dump(), parts["byte_level"].dump(), model.ignore_merges);
  const char* separator = "\n      ";
  for (std::uint32_t id = 0; id < model.tokens.size(); ++id) {
    if (model.tokens[id].empty()) continue;
    out += separator + vocab_entry(model, id);
    separator = ",\n      ";
  }
  out += "\n    },\n    \"merges\": [";
  separator = "\n      ";
  for (const auto& [left, right] : model.merges) {
    out += separator + Json(spell_bytes(model.tokens[left]) + ' ' + spell_bytes(model.tokens[right])).dump();
    separator = ",\n      ";
  }
  return out + "\n    ]\n  }\n}\n";
}

}  // namespace rooflm::text
