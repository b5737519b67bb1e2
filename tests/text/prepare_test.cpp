// Preparing data: what is written, that threads do not matter, and that failures change nothing.
#include "text/prepare.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/text/data_testing.h"
#include "text/bpe_trainer.h"
#include "text/prepare_documents.h"
#include "text/prepare_meta.h"

namespace rooflm::text {
namespace {

class Prepare : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(23);
    for (int i = 0; i < 20; ++i) {
      std::string text = "document " + std::to_string(i) + "\n";
      while (text.size() < 2000) text += random_text(random, false) + " words and more words\n";
      write_text(folder_ / ("in/" + std::to_string(i % 3) + "/" + std::to_string(i) + ".txt"), text);
      bytes_ += text.size();
    }
    options_.inputs = {folder_ / "in"};
    options_.output = folder_ / "out";
    options_.train_vocab = 400;
    options_.message = [this](const std::string& line) { messages_ += line + "\n"; };
  }
  std::string tokens_as_text(const PreparedData& data, const SplitInfo& split) {
    const auto tokenizer = Tokenizer::load(data.tokenizer);
    std::vector<std::uint32_t> ids;
    for (const auto& path : split.shards) {
      const Shard shard(path);
      std::vector<std::int32_t> part(shard.size());
      shard.read(0, part);
      ids.insert(ids.end(), part.begin(), part.end());
    }
    EXPECT_EQ(ids.size(), split.tokens);
    return tokenizer.decode(ids);
  }
  TemporaryFolder folder_;
  PrepareOptions options_;
  std::string messages_;
  std::uint64_t bytes_ = 0;
};

TEST_F(Prepare, AllTextIsThereInOrder) {
  const auto data = prepare(options_);
  EXPECT_EQ(data.train.documents + data.val.documents, 20U);
  EXPECT_EQ(data.train.bytes + data.val.bytes, bytes_);
  EXPECT_NEAR(static_cast<double>(data.val.bytes), 0.1 * static_cast<double>(bytes_), 2100.0);
  std::string train;
  std::string val;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "in")) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  const auto val_text = tokens_as_text(data, data.val);
  for (const auto& file : files) {
    const auto text = "<|endoftext|>" + read_text(file);
    (val_text.find(text) != std::string::npos ? val : train) += text;
  }
  EXPECT_EQ(val_text, val);
  EXPECT_EQ(tokens_as_text(data, data.train), train);
  const auto reopened = open_prepared(options_.output);
  EXPECT_EQ(reopened.train.shards, data.train.shards);
  EXPECT_EQ(reopened.val.tokens, data.val.tokens);
  EXPECT_EQ(reopened.vocab_size, data.vocab_size);
  EXPECT_EQ(reopened.val_unigram_cross_entropy, data.val_unigram_cross_entropy);
  EXPECT_LE(*data.val_unigram_entropy, *data.val_unigram_cross_entropy);
}

TEST_F(Prepare, ThreadsDoNotMatterAndShardsAreLimited) {
  write_text(folder_ / "in/long.txt", std::string(200000, 'x') + " and ");
  options_.threads = 1;
  const auto one = prepare(options_);
  options_.threads = 4;
  options_.output = folder_ / "four";
  prepare(options_);
  for (const auto& name : {"train_000000.bin", "val_000000.bin", "tokenizer.json", "meta.json"}) {
    EXPECT_EQ(read_text(folder_ / "out" / name), read_text(folder_ / "four" / name)) << name;
  }
  options_.output = folder_ / "limited";
  options_.shard_tokens = 1000;
  const auto limited = prepare(options_);
  EXPECT_EQ(limited.train.shards.size(), (one.train.tokens + 999) / 1000);
  EXPECT_EQ(Shard(limited.train.shards.front()).size(), 1000U);
  EXPECT_EQ(tokens_as_text(limited, limited.train), tokens_as_text(one, one.train));
}

TEST_F(Prepare, SkipsWhatIsNoText) {
  write_text(folder_ / "in/binary.dat", std::string("a\0b", 3));
  write_text(folder_ / "in/empty.txt", "");
  write_text(folder_ / "in/.hidden", "hidden");
  write_text(folder_ / "in/.git/config", "hidden");
  write_text(folder_ / "in/latin1.txt", "caf\xe9");
  options_.output = folder_ / "in/out";  // inside the input: not read as input the second time
  for (int twice = 0; twice < 2; ++twice) {
    messages_.clear();
    const auto data = prepare(options_);
    EXPECT_EQ(data.train.documents + data.val.documents, 21U);
    EXPECT_NE(messages_.find("skipped " + (folder_ / "in/binary.dat").string() + ": binary"),
              std::string::npos);
    EXPECT_NE(messages_.find("empty.txt: empty"), std::string::npos);
    EXPECT_NE(messages_.find("latin1.txt: not valid UTF-8"), std::string::npos);
    EXPECT_EQ(messages_.find("hidden"), std::string::npos);
    options_.overwrite = true;
  }
}

TEST_F(Prepare, SingleDocumentGivesItsTail) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(i) + "\n";
  options_.inputs = {write_text(folder_ / "one.txt", text)};
  const auto data = prepare(options_);
  EXPECT_NEAR(static_cast<double>(data.val.bytes), 0.1 * static_cast<double>(text.size()), 10);
  EXPECT_EQ(tokens_as_text(data, data.train).substr(13) + tokens_as_text(data, data.val).substr(13), text);
  EXPECT_TRUE(tokens_as_text(data, data.val).starts_with("<|endoftext|>line "));
  options_.val_fraction = 0;
  options_.overwrite = true;
  const auto whole = prepare(options_);
  EXPECT_EQ(whole.val.tokens, 0U);
  EXPECT_FALSE(whole.val_unigram_entropy);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/val_000000.bin"));  // the old one is gone
  EXPECT_FALSE(open_prepared(options_.output).val_unigram_cross_entropy);
}

TEST_F(Prepare, AShareThatWholeDocumentsMissIsSaid) {
  const std::string text(20000, 'x');
  options_.inputs = {write_text(folder_ / "a.txt", text), write_text(folder_ / "b.txt", text)};
  options_.val_fraction = 0.01;
  EXPECT_EQ(prepare(options_).val.documents, 1U);
  EXPECT_NE(messages_.find("validation is 50 % of the bytes where 1 % was asked for"), std::string::npos)
      << messages_;
}

TEST_F(Prepare, FoldersInFoldersAreWalkedOnce) {
  std::filesystem::path deep = folder_ / "deep";
  for (int level = 0; level < 400; ++level) deep /= "d";
  std::filesystem::create_directories(deep);
  write_text(deep / "a.txt", "the cat sat on the mat\n");
  options_.inputs = {folder_ / "deep"};
  options_.output = folder_ / "deep/out";  // within the input
  EXPECT_EQ(prepare(options_).train.documents, 1U);
  options_.overwrite = true;
  EXPECT_EQ(prepare(options_).train.documents, 1U);
}

TEST(PrepareSplit, SeedAndSizesDecide) {
  std::vector<Document> documents;
  for (std::uint64_t i = 0; i < 100; ++i) documents.push_back({std::to_string(i), 10, 0, 10});
  const auto names = [](const std::vector<Document>& part) {
    std::vector<std::string> all;
    for (const auto& document : part) all.push_back(document.path.string());
    return all;
  };
  const auto one = split_documents(documents, 0.2, 1);
  EXPECT_EQ(one.val.size(), 20U);
  EXPECT_EQ(names(one.val), names(split_documents(documents, 0.2, 1).val));
  EXPECT_NE(names(one.val), names(split_documents(documents, 0.2, 2).val));
  const std::vector<Document> two = {{"large", 1000, 0, 1000}, {"small", 900, 0, 900}};
  EXPECT_EQ(names(split_documents(two, 0.01, 1).val), std::vector<std::string>{"small"});
  EXPECT_EQ(split_documents(two, 0.99, 1).train.size(), 1U);
  documents.push_back({"huge", 100000, 0, 100000});  // the small ones must not all go to validation
  EXPECT_EQ(split_documents(documents, 0.1, 1).val.size(), 10U);
}

TEST(PrepareMeta, Entropies) {
  const std::vector<std::uint64_t> counts = {1, 1, 2, 0};
  EXPECT_NEAR(unigram_entropy(counts), 1.5 * std::log(2.0), 1e-12);
  const std::vector<std::uint64_t> model = {3, 1, 0, 0};
  // (c + 1) / (4 + 4): 4/8, 2/8, 1/8
  EXPECT_NEAR(unigram_cross_entropy(counts, model),
              (std::log(2.0) + 2 * std::log(2.0) + 2 * 3 * std::log(2.0)) / 4, 1e-12);
}

TEST_F(Prepare, FailuresChangeNothing) {
  prepare(options_);
  write_text(folder_ / "out/mine.txt", "mine");
  const auto files = folder_.files();
  const auto meta = read_text(folder_ / "out/meta.json");
  const auto expect_untouched = [&] {
    EXPECT_EQ(folder_.files(), files);
    EXPECT_EQ(read_text(folder_ / "out/meta.json"), meta);
  };
  expect_error<core::UsageError>([&] { prepare(options_); }, {"out", "--overwrite"});
  expect_untouched();
  options_.overwrite = true;
  auto bad = options_;
  bad.inputs.push_back(folder_ / "none");
  expect_error<core::InputError>([&] { prepare(bad); }, {"none", "No such file"});
  bad = options_;
  bad.tokenizer = folder_ / "in/0/0.txt";
  expect_error<core::InputError>([&] { prepare(bad); }, {"0.txt"});
  bad = options_;
  bad.output = folder_ / "in/0/0.txt/x";
  expect_error<core::InputError>([&] { prepare(bad); }, {"0.txt"});
  bad = options_;
  bad.inputs = {folder_ / "out/train_000000.bin"};
  expect_error<core::InputError>([&] { prepare(bad); }, {"no text"});
  bad.output = folder_ / "new/deep";
  bad.tokenizer = folder_ / "none";
  bad.inputs = options_.inputs;
  expect_error<core::InputError>([&] { prepare(bad); }, {"none"});
  expect_untouched();
  bad = options_;
  for (const double fraction : {-0.1, 1.0, std::nan("")}) {
    bad.val_fraction = fraction;
    expect_error<core::UsageError>([&] { prepare(bad); }, {"fraction"});
  }
  bad = options_;
  bad.shard_tokens = 0;
  expect_error<core::UsageError>([&] { prepare(bad); }, {"per shard"});
  expect_untouched();
}

TEST_F(Prepare, DirectoryWithoutWritePermission) {
  namespace fs = std::filesystem;
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::create_directory(options_.output);
  fs::permissions(options_.output, fs::perms(0555));
  const bool is_root = ::geteuid() == 0;
  ASSERT_TRUE(!is_root || ::seteuid(65534) == 0);  // root may write everywhere
  for (const auto& output : {folder_ / "out", folder_ / "out/deeper/still"}) {
    options_.output = output;
    expect_error<core::InputError>([&] { prepare(options_); }, {"out", "Permission denied"});
  }
  ASSERT_TRUE(!is_root || ::seteuid(0) == 0);
  EXPECT_TRUE(fs::is_empty(folder_ / "out"));
}

TEST_F(Prepare, DiskThatFills) {
  prepare(options_);
  const auto files = folder_.files();
  const auto meta = read_text(folder_ / "out/meta.json");
  options_.overwrite = true;
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &usual), 0);
  const rlimit small = {4000, usual.rlim_max};  // a write beyond it fails as on a full disk
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error<core::InputError>([&] { prepare(options_); }, {"cannot write", "out"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &usual), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(folder_.files(), files);
  EXPECT_EQ(read_text(folder_ / "out/meta.json"), meta);
}

TEST_F(Prepare, DamagedMetaIsPlaced) {
  prepare(options_);
  const auto path = folder_ / "out/meta.json";
  const auto good = nlohmann::json::parse(read_text(path));
  const auto expect_bad = [&](const std::string& text, std::initializer_list<std::string_view> words) {
    write_text(path, text);
    expect_error<core::InputError>([&] { open_prepared(options_.output); }, words);
  };
  expect_bad("{", {"meta.json", "data prepare"});
  auto bad = good;
  bad["version"] = 9;
  expect_bad(bad.dump(), {"meta.json", "version 9", "expected 1"});
  bad = good;
  bad["train"].erase("tokens");
  expect_bad(bad.dump(), {"meta.json", "'train'", "'tokens'", "missing"});
  bad = good;
  bad["vocab_size"] = "many";
  expect_bad(bad.dump(), {"meta.json", "'vocab_size'", "many"});
  const std::vector<std::pair<const char*, nlohmann::json>> values = {
      {"format", "another format"},
      {"format", nullptr},
      {"version", -1},
      {"vocab_size", -1},
      {"vocab_size", 1U << 30U},
      {"train", 3},
      {"tokenizer", "../../secret"},
      {"tokenizer", ""},
      {"train_unigram_entropy_nats_per_token", -1},
      {"val_unigram_entropy_nats_per_token", "much"}};
  for (const auto& [key, value] : values) {
    bad = good;
    bad[key] = value;
    expect_bad(bad.dump(2), {"meta.json", key, "line "});
  }
  for (const char* key : {"documents", "bytes", "tokens"}) {
    for (const nlohmann::json& value : {nlohmann::json(-5), nlohmann::json(1.5), nlohmann::json(1e300)}) {
      bad = good;
      bad["train"][key] = value;
      expect_bad(bad.dump(2), {"meta.json", "'train'", key});
    }
  }
  bad = good;
  bad["train"]["shards"] = {"/etc/passwd"};
  expect_bad(bad.dump(), {"'shards'", "same directory"});
  bad["train"]["shards"] = std::string(100'000, 'x');
  expect_bad(bad.dump(), {"'shards'", "... (100002 bytes)"});
  expect_bad(std::string(200'000, '['), {"meta.json", "deeper than 64 levels", "line 1"});
  expect_bad(R"({"version": 1e999})", {"meta.json", "too large", "1e999"});
  bad = good;
  bad["val"]["shards"] = {"val_000009.bin"};
  expect_bad(bad.dump(), {"val_000009.bin", "missing"});
  expect_error<core::InputError>([&] { open_prepared(folder_ / "in"); },
                                 {"in/meta.json", "No such file", "(made by `rooflm data prepare`)"});
}

}  // namespace
}  // namespace rooflm::text
