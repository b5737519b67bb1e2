// BPE: text to token ids and back, over bytes as GPT-2 and Llama 3 do it, or over characters as Llama 2 and
// Gemma do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rooflm::text {

struct BpeModel;
class WordEncoder;

/// What "<|endoftext|>" and its like mean when they are found in a text.
enum class SpecialTokens : std::uint8_t {
  as_text,    ///< ordinary characters: untrusted text cannot forge a document boundary
  recognise,  ///< the one token of that name
};

/// A BPE vocabulary with its splitting pattern. Immutable and cheap to copy (copies share the
/// tables); every const method may be called from several threads at once.
///
/// Text is UTF-8. Bytes that are not valid UTF-8 are kept: for the splitting pattern each of them counts as
/// one character that is no letter, digit or white space, and its byte is encoded as it is, so
/// decode(encode(x)) == x for every sequence of bytes. BPE over characters writes blanks as "▁": it cannot
/// tell such a character from a blank, nor, in some files, one blank before a text from none.
class Tokenizer {
 public:
  /// Reads a tokenizer from
  ///  - a directory that holds tokenizer.json, or vocab.json + merges.txt, or encoder.json + vocab.bpe;
  ///  - a tokenizer.json (Hugging Face format: BPE model, ByteLevel, alone or after Split patterns; or with
  ///  byte
  ///    fallback and "▁" for blanks);
  ///  - a vocab.json or encoder.json, with merges.txt or vocab.bpe beside it; it is split as the class in the
  ///    tokenizer_config.json beside it is, or as GPT-2.
  /// Post-processors (a leading BOS, say) are not applied: ids are those of the text alone, and bos() says
  /// what is set before it.
  /// Throws core::InputError that names the file, the place and the expectation when the file is missing,
  /// damaged or describes a tokenizer of another kind (Unigram, WordPiece, a normalizer other than NFC, a
  /// class whose split is not known). With NFC, encoding throws core::InputError
  /// for text that may not be in that form.
  static Tokenizer load(const std::filesystem::path& path);

  /// A new vocabulary: `special` tokens come last, `merges` are pairs of ids in order of rank, and merge i
  /// makes id 256 + i; ids 0..255 are the bytes in GPT-2's order (printable ones first). GPT-2's splitting
  /// pattern.
  static Tokenizer from_merges(std::span<const std::pair<std::uint32_t, std::uint32_t>> merges,
                               std::span<const std::string> special);

  /// The ids of `text`, on the calling thread. `is_beginning`: it begins a text, which some files mark.
  [[nodiscard]] std::vector<std::uint32_t> encode(std::string_view text,
                                                  SpecialTokens special = SpecialTokens::as_text,
                                                  bool is_beginning = true) const;
  /// What a model continues: bos(), if there is one, and the ids of `text`.
  [[nodiscard]] std::vector<std::uint32_t> encode_prompt(std::string_view text) const;
  /// The same ids as encode(text), computed by `threads` threads (0: one per core) on chunks cut where the
  /// splitting pattern is sure to cut. With SpecialTokens::as_text.
  [[nodiscard]] std::vector<std::uint32_t> encode_parallel(std::string_view text, int threads = 0) const;

  /// The bytes of the ids, special tokens as their names. Throws core::InputError that names the id and the
  /// vocabulary size when an id is not in the vocabulary.
  [[nodiscard]] std::string decode(std::span<const std::uint32_t> ids) const;
  /// The bytes of one token; the view lives as long as the tokenizer. Throws as decode does.
  [[nodiscard]] std::string_view token_bytes(std::uint32_t id) const;

  /// One more than the largest id (50257 for GPT-2).
  [[nodiscard]] std::uint32_t vocab_size() const;
  /// The end-of-text token that separates documents ("<|endoftext|>", "<|end_of_text|>", "</s>" or "<eos>"),
  /// if any.
  [[nodiscard]] std::optional<std::uint32_t> eot() const;
  /// The token that the file sets before a text that a model is to continue ("<s>", "<bos>"), if any.
  [[nodiscard]] std::optional<std::uint32_t> bos() const;
  /// The id of a special token by its name, if there is one.
  [[nodiscard]] std::optional<std::uint32_t> special_id(std::string_view name) const;

  /// Whether both give every text the same ids: equal tokens, merges and splitting patterns, however their
  /// files are formatted. Names of special tokens count as tokens.
  [[nodiscard]] bool encodes_as(const Tokenizer& other) const;

  /// Writes a tokenizer.json that Hugging Face's tokenizers library opens, atomically. Throws
  /// core::InputError.
  void save(const std::filesystem::path& path) const;

 private:
  friend class TokenStream;
  friend class ParallelEncoder;
  explicit Tokenizer(std::shared_ptr<const BpeModel> model) : model_(std::move(model)) {}

  std::shared_ptr<const BpeModel> model_;
};

/// Encodes many texts one after the other on one thread and keeps its cache of words between them: faster
/// than Tokenizer::encode for many short texts. Move-only; one per thread.
class TokenStream {
 public:
  explicit TokenStream(const Tokenizer& tokenizer);
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;
  ~TokenStream();

  /// Appends the ids of `text` to `ids`. `text` is encoded as a text of its own.
  void encode(std::string_view text, std::vector<std::uint32_t>& ids,
              SpecialTokens special = SpecialTokens::as_text);

 private:
  std::shared_ptr<const BpeModel> model_;
  std::unique_ptr<WordEncoder> words_;
};

}  // namespace rooflm::text
