// From files and folders of text to token shards with a train/validation split.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace rooflm::text {

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;  ///< files, and folders (all files below them, sorted by path)
  std::filesystem::path output;               ///< directory, made when missing
  std::filesystem::path tokenizer;   ///< for Tokenizer::load; empty: learn one from the training part
  std::uint32_t train_vocab = 4096;  ///< vocabulary size when a tokenizer is learned
  /// Share for validation, in [0, 1): whole documents chosen by `seed`, at most this share of them and of the
  /// bytes; of a single document its tail. Above 0 both parts get at least one document.
  double val_fraction = 0.1;
  std::uint64_t seed = 0;
  std::uint64_t shard_tokens = 100'000'000;  ///< most tokens of one shard
  int threads = 0;                           ///< 0: one per core
  bool overwrite = false;                    ///< replace the prepared data that `output` already holds
  std::function<void(const std::string&)> message =
      {};  ///< progress and skipped files, one line each; may be empty
};

/// What meta.json says of one part, train or val.
struct SplitInfo {
  std::vector<std::filesystem::path> shards;  ///< full paths
  std::uint64_t documents = 0;
  std::uint64_t bytes = 0;   ///< of text
  std::uint64_t tokens = 0;  ///< with one end-of-text token before every document
};

/// A directory made by prepare(): shards, tokenizer.json and meta.json.
struct PreparedData {
  std::filesystem::path directory;
  std::filesystem::path tokenizer;  ///< full path of tokenizer.json
  std::uint32_t vocab_size = 0;
  SplitInfo train;
  SplitInfo val;
  /// Nats per token of the validation tokens under the unigram frequencies of the training part with add-one
  /// smoothing over the vocabulary, -1/n sum log((c(t) + 1) / (N + V)): what a model that ignores context
  /// reaches. Absent without a validation part.
  std::optional<double> val_unigram_cross_entropy;
  /// Entropy of the validation part's own unigram frequencies, nats per token: no context-free model is below
  /// it.
  std::optional<double> val_unigram_entropy;
  double train_unigram_entropy = 0;
};

/// Tokenizes the inputs and writes `train_000000.bin`, ..., `val_000000.bin`, ..., tokenizer.json and
/// meta.json to the output directory. Files that hold a NUL byte are taken for binary and skipped with a
/// message, as are empty ones and names that begin with a dot below a folder. The result depends on the
/// paths' order, contents and options only, not on threads. All is written aside and renamed at the end: on
/// any failure, nothing that existed has changed. Throws core::UsageError for options out of range or an
/// output that already holds prepared data without `overwrite`, and core::InputError for missing or
/// unreadable inputs, no text at all, a directory without write permission or a full disk.
PreparedData prepare(const PrepareOptions& options);

/// What prepare() would take: of how many documents and bytes. It reads and checks as prepare() does, and
/// writes nothing; of the output only whether it may be replaced.
struct PrepareInputs {
  std::uint64_t documents = 0, bytes = 0;
};
PrepareInputs find_inputs(const PrepareOptions& options);

/// Reads meta.json of a prepared directory and checks that its shards are there. Throws core::InputError.
PreparedData open_prepared(const std::filesystem::path& directory);

}  // namespace rooflm::text
