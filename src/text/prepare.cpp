// The steps of preparing data: find, split, tokenize, write, commit.
#include "text/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "text/bpe_trainer.h"
#include "text/prepare_documents.h"
#include "text/prepare_meta.h"
#include "text/prepare_output.h"
#include "text/shard.h"
#include "text/tokenizer_chunks.h"

namespace rooflm::text {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;   // what a thread takes at a time
constexpr std::size_t kRoundBytes = std::size_t{32} << 20U;  // text whose tokens are held in memory
constexpr std::size_t kRoundPieces = 4096;                   // files mapped at the same time

void check(const PrepareOptions& options) {
  if (!(options.val_fraction >= 0 && options.val_fraction < 1)) {
    throw core::UsageError(
        fmt::format("validation fraction {}: expected 0 or more and less than 1", options.val_fraction));
  }
  if (options.shard_tokens < 2 || options.shard_tokens > kMaxShardTokens) {
    throw core::UsageError(
        fmt::format("{} tokens per shard: expected 2 to {}", options.shard_tokens, kMaxShardTokens));
  }
}

/// Writes one part's shards and counts its tokens.
class SplitWriter {
 public:
  SplitWriter(std::string name, const StagedOutput& output, const PrepareOptions& options,
              std::uint32_t vocab_size, const Message& message)
      : name_(std::move(name)),
        output_(output),
        final_(options.output),
        limit_(options.shard_tokens),
        width_(width_for(vocab_size)),
        counts_(vocab_size),
        message_(message) {}

  void append(std::span<const std::uint32_t> tokens) {
    for (const auto id : tokens) ++counts_[id];
    info_.tokens += tokens.size();
    while (!tokens.empty()) {
      if (writer_ && writer_->size() == limit_) finish();
      if (!writer_) open();
      const auto n = std::min<std::uint64_t>(tokens.size(), limit_ - writer_->size());
      writer_->append(tokens.first(n));
      tokens = tokens.subspan(n);
    }
  }

  void begin_document(std::size_t bytes, std::uint32_t eot) {
    ++info_.documents;
    info_.bytes += bytes;
    append({&eot, 1});
  }

  SplitInfo close() {
    if (writer_) finish();
    return std::move(info_);
  }
  [[nodiscard]] const std::vector<std::uint64_t>& counts() const { return counts_; }

 private:
  void open() {
    const auto file = fmt::format("{}_{:06}.bin", name_, info_.shards.size());
    writer_.emplace(output_.path_for(file), width_);
    info_.shards.push_back(final_ / file);
  }
  void finish() {
    writer_->finish();
    message_(fmt::format("{}: {} tokens", info_.shards.back().filename().string(), writer_->size()));
    writer_.reset();
  }

  std::string name_;
  const StagedOutput& output_;
  std::filesystem::path final_;
  std::uint64_t limit_;
  TokenWidth width_;
  std::optional<ShardWriter> writer_;
  SplitInfo info_;
  std::vector<std::uint64_t> counts_;
  const Message& message_;
};

/// A part of a document that one thread takes, and what keeps it open.
struct Piece {
  std::shared_ptr<const DocumentText> document;
  bool starts_document;
};

/// Says every few seconds how far a part is, and how long the rest may take.
class Pace {
 public:
  Pace(std::string part, const std::vector<Document>& documents, const Message& message)
      : part_(std::move(part)), message_(message) {
    for (const Document& document : documents) all_ += static_cast<double>(document.bytes);
  }
  void add(std::size_t bytes) {
    constexpr std::chrono::seconds kPause{5};
    done_ += static_cast<double>(bytes);
    const auto now = std::chrono::steady_clock::now();
    if (now - said_ < kPause || done_ >= all_) return;
    said_ = now;
    const std::chrono::duration<double> elapsed = now - start_;
    message_(fmt::format("{}: {} of {}, about {} left", part_, core::format_bytes(done_),
                         core::format_bytes(all_),
                         core::format_clock(elapsed.count() / done_ * (all_ - done_))));
  }

 private:
  std::string part_;
  const Message& message_;
  double all_ = 0, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), said_ = start_;
};

/// Tokenizes documents in rounds of bounded size, each cut into pieces for the threads.
void tokenize(const std::vector<Document>& documents, std::uint32_t eot, ParallelEncoder& encoder,
              SplitWriter& writer, Pace pace) {
  std::vector<Piece> pieces;
  std::vector<std::string_view> texts;
  std::vector<std::vector<std::uint32_t>> ids;
  std::size_t bytes = 0;
  const auto flush = [&] {
    core::StopSignals::check();
    encoder.encode(texts, ids);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].starts_document) writer.begin_document(pieces[i].document->text().size(), eot);
      writer.append(ids[i]);
    }
    texts.clear();
    pieces.clear();
    pace.add(std::exchange(bytes, 0));
  };
  for (const auto& document : documents) {
    const auto mapped = std::make_shared<const DocumentText>(document);
    bool starts = true;
    for (const auto text : encoder.cut(mapped->text(), kPieceBytes)) {
      texts.push_back(text);
      pieces.push_back({mapped, std::exchange(starts, false)});
      bytes += text.size();
      if (bytes >= kRoundBytes || pieces.size() >= kRoundPieces) flush();
    }
  }
  flush();
}

Tokenizer get_tokenizer(const PrepareOptions& options, const std::vector<Document>& train,
                        const Message& message) {
  if (!options.tokenizer.empty()) return Tokenizer::load(options.tokenizer);
  BpeTrainer trainer({.vocab_size = options.train_vocab});
  for (const auto& document : train) {
    core::StopSignals::check();
    trainer.add(DocumentText(document).text());
  }
  auto tokenizer = trainer.train();
  message(fmt::format("learned a vocabulary of {} tokens", tokenizer.vocab_size()));
  return tokenizer;
}

/// Whole documents are dealt out, which may miss the share that was asked for.
void say_share(const Split& split, double fraction, const Message& message) {
  const auto bytes_of = [](const std::vector<Document>& documents) {
    double bytes = 0;
    for (const Document& document : documents) bytes += static_cast<double>(document.bytes);
    return bytes;
  };
  const double val = bytes_of(split.val);
  const double share = val / (val + bytes_of(split.train));
  constexpr double kFar = 2;
  if (val == 0 || (share <= kFar * fraction && kFar * share >= fraction)) return;
  message(fmt::format(
      "validation is {:.2g} % of the bytes where {:.2g} % was asked for: it is made of whole documents",
      100 * share, 100 * fraction));
}

PreparedData prepare_checked(const PrepareOptions& options, const Message& message) {
  StagedOutput output(options.output, options.overwrite);  // fails early when it cannot be written
  const auto documents = find_documents(options.inputs, options.output, message);
  const Split split = split_documents(documents, options.val_fraction, options.seed);
  if (options.val_fraction > 0 && split.val.empty())
    message("the text is too short to be split: no validation part");
  say_share(split, options.val_fraction, message);
  const Tokenizer tokenizer = get_tokenizer(options, split.train, message);
  if (!tokenizer.eot()) {
    throw core::InputError(fmt::format(
        "{}: no token <|endoftext|> (or <|end_of_text|>) to separate documents", options.tokenizer.string()));
  }
  ParallelEncoder encoder(tokenizer, options.threads);
  PreparedData data;
  data.directory = options.output;
  data.vocab_size = tokenizer.vocab_size();
  data.tokenizer = options.output / "tokenizer.json";
  SplitWriter train("train", output, options, data.vocab_size, message);
  tokenize(split.train, *tokenizer.eot(), encoder, train, Pace("train", split.train, message));
  data.train = train.close();
  data.train_unigram_entropy = unigram_entropy(train.counts());
  SplitWriter val("val", output, options, data.vocab_size, message);
  tokenize(split.val, *tokenizer.eot(), encoder, val, Pace("val", split.val, message));
  data.val = val.close();
  if (data.val.tokens > 0) {
    data.val_unigram_entropy = unigram_entropy(val.counts());
    data.val_unigram_cross_entropy = unigram_cross_entropy(val.counts(), train.counts());
  }
  tokenizer.save(output.path_for("tokenizer.json"));
  core::write_file_atomically(output.path_for("meta.json"), meta_json(data));
  output.commit();
  return data;
}

/// `work`, with errors of the file system as errors of the input.
template <class Work>
auto with_input_errors(const PrepareOptions& options, const Work& work) {
  check(options);
  const Message message = options.message ? options.message : [](const std::string&) {};
  try {
    return work(message);
  } catch (const std::filesystem::filesystem_error& error) {
    if (error.code() == std::errc::not_enough_memory) throw std::bad_alloc();
    throw core::InputError(fmt::format("cannot read {}: {}", error.path1().string(), error.code().message()));
  }
}

}  // namespace

PreparedData prepare(const PrepareOptions& options) {
  return with_input_errors(options,
                           [&](const Message& message) { return prepare_checked(options, message); });
}

PrepareInputs find_inputs(const PrepareOptions& options) {
  return with_input_errors(options, [&](const Message& message) {
    check_replaceable(options.output, options.overwrite);
    if (!options.tokenizer.empty()) static_cast<void>(Tokenizer::load(options.tokenizer));
    PrepareInputs found;
    for (const Document& document : find_documents(options.inputs, options.output, message)) {
      ++found.documents;
      found.bytes += document.bytes;
    }
    return found;
  });
}

}  // namespace rooflm::text
