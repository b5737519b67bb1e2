// Checkpoints: whole or not at all, and complaints that name the file.
#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "core/error.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

namespace fs = std::filesystem;

/// A training of a few steps in a scratch directory.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : data_(testing::tiny_data(directory_)), options_(testing::tiny_options(out(), 4)) {
    testing::byte_tokenizer().save(directory_ / "tokenizer.json");
  }
  [[nodiscard]] fs::path out() const { return directory_ / "out"; }
  TrainSummary train() { return testing::run_training(testing::tiny_model(), options_, data_); }
  TrainSummary resume() {
    return testing::run_training(
        testing::tiny_model(), options_, data_,
        {.weights = {}, .checkpoint = list_checkpoints(out()).back(), .may_resume = true});
  }
  /// A model whose vocabulary was padded.
  static model::ModelConfig padded_model() {
    model::ModelConfig config = testing::tiny_model();
    config.vocab = 257;
    config.padded_vocab = 320;
    return config;
  }
  /// Its checkpoint after four steps.
  fs::path train_with_tokenizer() {
    data_.tokenizer = directory_ / "tokenizer.json";
    testing::run_training(padded_model(), options_, data_);
    return out() / "checkpoint-000004";
  }
  /// The message of the InputError that resuming throws.
  std::string complaint() {
    try {
      const auto checkpoint = list_checkpoints(out()).back();
      static_cast<void>(read_checkpoint_config(checkpoint, read_checkpoint_state(checkpoint)));
      resume();
    } catch (const core::InputError& error) {
      return error.what();
    }
    return "no error";
  }

  testing::ScratchDirectory directory_;
  TrainingData data_;
  TrainOptions options_;
};

TEST_F(CheckpointTest, HoldsEverythingAndLatestPointsToIt) {
  const fs::path checkpoint = train_with_tokenizer();
  for (const char* name :
       {"config.json", "model.safetensors", "optimizer.safetensors", "state.json", "tokenizer.json"}) {
    EXPECT_TRUE(fs::exists(checkpoint / name)) << name;
  }
  EXPECT_EQ(fs::read_symlink(out() / "latest"), "checkpoint-000004");
  EXPECT_EQ(resolve_model_directory(out()), checkpoint);
  EXPECT_EQ(resolve_model_directory(checkpoint), checkpoint);
  EXPECT_EQ(testing::read_text(checkpoint / "tokenizer.json"), testing::read_text(data_.tokenizer));
  const CheckpointState state = read_checkpoint_state(checkpoint);
  EXPECT_EQ(state.step, 4);
  EXPECT_EQ(state.tokens, 4U * 16);
  EXPECT_EQ(state.loader.position, 8U);
  EXPECT_EQ(state.shards.at(1), (ShardName{"train_000001.bin", 300}));
  EXPECT_TRUE(state.best_val_loss.has_value());
  EXPECT_EQ(state.options, to_texts(options_));
  EXPECT_EQ(read_checkpoint_config(checkpoint, state).padded_vocab, 320);
}

TEST_F(CheckpointTest, WhatARunKilledAfterItsLastCheckpointLeftIsSettled) {
  options_.checkpoint_every = 2;
  options_.keep = 1;
  train();
  // The moment before the link is moved and the old checkpoint removed.
  fs::copy(out() / "checkpoint-000004", out() / "checkpoint-000002", fs::copy_options::recursive);
  fs::remove(out() / "latest");
  fs::create_directory_symlink("checkpoint-000002", out() / "latest");
  resume();
  EXPECT_EQ(fs::read_symlink(out() / "latest"), "checkpoint-000004");
  EXPECT_EQ(list_checkpoints(out()).size(), 1U);
}

TEST_F(CheckpointTest, RoundTripIsExact) {
  const auto backend = testing::backend_for(compile::EngineKind::fused);
  const compile::StepOptions step;
  const auto make = [&](std::uint64_t seed) {
    auto session = std::make_unique<Session>(*backend, testing::tiny_model(), step);
    session->make_training_engine(2, 8);
    session->initialise(seed);
    return session;
  };
  const auto one = make(1);
  DataLoader loader(data_.train, {.batch = 2, .seq = 8});
  for (int t = 1; t <= 3; ++t) {
    one->set_micro_batch(0, loader.next());
    one->update(1e-2, t);
  }
  fs::create_directory(out());
  CheckpointState state;
  state.step = 3;
  state.padded_vocab = 64;
  state.model_name = "test";
  const auto saved = save_checkpoint(out(), state, *one, {}, 2);
  const auto other = make(2);
  load_checkpoint(saved, *other);
  for (const auto& [name, entry] : one->store().entries()) {
    EXPECT_EQ(one->store().read<float>(name), other->store().read<float>(name)) << name;
  }
}

TEST_F(CheckpointTest, KeepsTheLastOnes) {
  options_.checkpoint_every = 1;
  train();
  const auto all = list_checkpoints(out());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].filename(), "checkpoint-000003");
  EXPECT_EQ(all[1].filename(), "checkpoint-000004");
}

TEST_F(CheckpointTest, UnfinishedOnesAreIgnoredAndRemoved) {
  train();
  fs::create_directory(out() / "checkpoint-000009.tmp");
  testing::write_text(out() / "checkpoint-000009.tmp/state.json", "{}");
  fs::create_directory(out() / "checkpoint-notes");
  EXPECT_EQ(list_checkpoints(out()).size(), 1U);
  resume();
  EXPECT_FALSE(fs::exists(out() / "checkpoint-000009.tmp"));
  EXPECT_TRUE(fs::exists(out() / "checkpoint-notes"));
}

TEST_F(CheckpointTest, OtherFilesAreNotTouched) {
  train();
  EXPECT_THROW(train(), core::UsageError) << "a second run without --resume";
  fs::remove_all(out() / "checkpoint-000004");
  EXPECT_THROW(train(), core::UsageError) << "the log is still there";
  EXPECT_FALSE(testing::read_text(out() / "log.jsonl").empty());
}

TEST_F(CheckpointTest, TwoRunsDoNotShareADirectory) {
  const OutputDirectory held(out());
  EXPECT_THROW(train(), core::UsageError);
}

TEST_F(CheckpointTest, DamageIsNamed) {
  train();
  const fs::path checkpoint = out() / "checkpoint-000004";
  for (const char* name : {"config.json", "model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string whole = testing::read_text(checkpoint / name);
    for (const std::size_t size : {std::size_t{0}, whole.size() / 2, whole.size() - 3}) {
      testing::write_text(checkpoint / name, whole.substr(0, size));
      EXPECT_NE(complaint().find(name), std::string::npos) << name << " " << size << ": " << complaint();
    }
    fs::remove(checkpoint / name);
    EXPECT_NE(complaint(), "no error") << name;
    testing::write_text(checkpoint / name, whole);
  }
  EXPECT_EQ(complaint(), "no error");
}

TEST_F(CheckpointTest, AFlippedBitIsFound) {
  train();
  const fs::path checkpoint = out() / "checkpoint-000004";
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string whole = testing::read_text(checkpoint / name);
    std::string flipped = whole;
    flipped[flipped.size() - 100] = static_cast<char>(flipped[flipped.size() - 100] ^ 1);
    testing::write_text(checkpoint / name, flipped);
    EXPECT_NE(complaint().find(name), std::string::npos) << complaint();
    EXPECT_NE(complaint().find("checksum"), std::string::npos) << complaint();
    testing::write_text(checkpoint / name, whole);
  }
}

TEST_F(CheckpointTest, AModelIsVerifiedWithoutTheOptimizer) {
  const fs::path checkpoint = train_with_tokenizer();
  EXPECT_NO_THROW(verify_model(checkpoint));
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    const std::string whole = testing::read_text(checkpoint / name);
    std::string flipped = whole;
    flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 1);
    testing::write_text(checkpoint / name, flipped);
    try {
      verify_model(checkpoint);
      ADD_FAILURE() << name << " is changed";
    } catch (const core::InputError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
    testing::write_text(checkpoint / name, whole);
  }
  fs::remove(checkpoint / "optimizer.safetensors");
  fs::remove(checkpoint / "tokenizer.json");
  EXPECT_NO_THROW(verify_model(checkpoint));
  fs::remove(checkpoint / "state.json");
  testing::write_text(checkpoint / "config.json", "of others");
  EXPECT_NO_THROW(verify_model(checkpoint)) << "a model directory without checksums";
}

/// Prepared again, the folder has another tokenizer, which the model has never seen.
TEST_F(CheckpointTest, TheTokenizerIsThatOfTheBeginning) {
  data_.tokenizer = directory_ / "tokenizer.json";
  const std::string before = testing::read_text(data_.tokenizer);
  const auto backend = testing::backend_for(options_.step.engine);
  Trainer trainer(*backend, padded_model(), options_, data_, {}, nullptr);
  fs::remove(data_.tokenizer);
  trainer.run();
  EXPECT_EQ(testing::read_text(out() / "checkpoint-000004/tokenizer.json"), before);
}

TEST_F(CheckpointTest, ForeignFilesAreNamed) {
  train();
  const fs::path checkpoint = out() / "checkpoint-000004";
  const std::string state = testing::read_text(checkpoint / "state.json");
  testing::write_text(checkpoint / "state.json", R"({"format": "something else", "version": 1})");
  EXPECT_NE(complaint().find("format"), std::string::npos) << complaint();
  std::string negative = state;
  negative.replace(negative.find("\"step\": 4"), 9, "\"step\": -4");
  testing::write_text(checkpoint / "state.json", negative);
  EXPECT_NE(complaint().find("step"), std::string::npos) << complaint();
  testing::write_text(checkpoint / "state.json", state);
  fs::copy_file(checkpoint / "model.safetensors", checkpoint / "optimizer.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_NE(complaint().find("optimizer.safetensors"), std::string::npos) << complaint();
}

/// state.json of the last checkpoint with one piece replaced.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST_F(CheckpointTest, AChangedStateIsRefused) {
  train();
  const fs::path path = out() / "checkpoint-000004/state.json";
  const std::string state = testing::read_text(path);
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"\"step\": 4", "\"step\": 5"},     {"\"position\": 8", "\"position\": 9"},
      {"\"epoch\": 0", "\"epoch\": 1"},   {"\"seed\": \"", "\"seed\": \"9"},
      {"\"lr\": \"", "\"lr\": \"1"},      {"\"checksum\": \"", "\"checksum\": \"0"},
      {"\"checksum\"", "\"checksums2\""}, {"{\n", "{\n\n"}};
  for (const auto& [from, to] : changes) {
    testing::write_text(path, replaced(state, from, to));
    const std::string found = complaint();
    EXPECT_NE(found.find("state.json"), std::string::npos) << from << ": " << found;
    EXPECT_NE(found.find("checksum"), std::string::npos) << from << ": " << found;
  }
  testing::write_text(path, state);
  EXPECT_EQ(complaint(), "no error");
}

/// What a rooflm before the checksum of state.json wrote.
std::string version_1(const std::string& state) {
  const std::string older = replaced(state, "\"version\": 2", "\"version\": 1");
  return older.substr(0, older.rfind(",\n  \"checksum\"")) + "\n}\n";
}

TEST_F(CheckpointTest, AnOlderStateResumesWithoutAChecksum) {
  train();
  const fs::path path = out() / "checkpoint-000004/state.json";
  const std::string state = version_1(testing::read_text(path));
  testing::write_text(path, state);
  EXPECT_EQ(complaint(), "no error");
  const std::vector<std::pair<std::string, const char*>> changes = {
      {"\"position\": 8", "\"position\": -8"},
      {"\"epoch\": 0", "\"epoch\": 1e30"},
      {"\"optimizer.safetensors\"", "\"../../optimizer.safetensors\""},
      {"\"config.json\"", "\"config.txt\""},
      {"\"version\": 1", "\"version\": 3"}};
  for (const auto& [from, to] : changes) {
    testing::write_text(path, replaced(state, from, to));
    EXPECT_NE(complaint().find("state.json: line "), std::string::npos) << to << ": " << complaint();
  }
  const auto at = state.find("\"checksums\"");
  testing::write_text(path, state.substr(0, at) + "\"checksums\": {}\n}\n");
  EXPECT_NE(complaint().find("checksums"), std::string::npos) << complaint();
}

TEST_F(CheckpointTest, ABadOptionOfAStateIsItsFault) {
  train();
  const fs::path path = out() / "checkpoint-000004/state.json";
  const std::string state = version_1(testing::read_text(path));
  for (const auto& [from, to] :
       {std::pair{"\"batch\": \"", "\"batch\": \"-"}, {"\"lr\": \"", "\"lr\": \"x"}}) {
    testing::write_text(path, replaced(state, from, to));
    const auto checkpoint = list_checkpoints(out()).back();
    const OptionTexts texts = read_checkpoint_state(checkpoint).options;
    const auto nothing_given = [](const std::string&) { return false; };
    EXPECT_THROW(continued(options_, texts, nothing_given, checkpoint.string()), core::InputError) << to;
  }
}

TEST_F(CheckpointTest, OtherDataIsRefused) {
  train();
  data_.train.pop_back();
  EXPECT_THROW(resume(), core::UsageError);
}

/// No more than `bytes` can be written to a file while it lives: a disk that is full.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(CheckpointTest, AFullDiskLosesNothing) {
  train();
  const auto before = testing::read_text(out() / "checkpoint-000004/state.json");
  options_.schedule.steps = 6;
  {
    const SmallDisk disk(20000);  // the weights need more
    EXPECT_NE(complaint().find("cannot write"), std::string::npos);
  }
  EXPECT_EQ(list_checkpoints(out()).size(), 1U);
  EXPECT_FALSE(fs::exists(out() / "checkpoint-000006.tmp"));
  EXPECT_EQ(testing::read_text(out() / "checkpoint-000004/state.json"), before);
  EXPECT_EQ(resume().step, 6);
}

TEST_F(CheckpointTest, ADirectoryWithoutPermissionIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "the superuser may write anywhere";
  fs::create_directory(out());
  fs::permissions(out(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THROW(train(), core::InputError);
  fs::permissions(out(), fs::perms::owner_all);
}

TEST_F(CheckpointTest, AFileInTheWayIsNamed) {
  testing::write_text(out(), "a file");
  EXPECT_THROW(train(), core::InputError);
  EXPECT_EQ(testing::read_text(out()), "a file");
}

}  // namespace
}  // namespace rooflm::train
