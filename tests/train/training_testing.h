// What tests of training share: a scratch directory, small shards, a tiny model, one run of it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/rng.h"
#include "text/shard.h"
#include "text/tokenizer.h"
#include "train/trainer.h"

namespace rooflm::train::testing {

/// A directory of its own for one test, removed at the end.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "rooflm_train_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = name;
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A shard of `count` ids below `vocab`: a repeating pattern with noise, so that there is something to learn.
inline std::filesystem::path write_shard(const std::filesystem::path& path, std::uint64_t count,
                                         std::uint32_t vocab, std::uint64_t seed = 1) {
  std::vector<std::uint32_t> ids;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t noise = core::philox(seed, 7, i)[0];
    ids.push_back(noise % 4 == 0 ? noise / 4 % vocab : static_cast<std::uint32_t>(i * 5 % 23));
  }
  text::ShardWriter writer(path, text::TokenWidth::u16);
  writer.append(ids);
  writer.finish();
  return path;
}

/// The bytes and an end-of-text token: 257 ids.
inline text::Tokenizer byte_tokenizer() {
  const std::vector<std::string> special = {"<|endoftext|>"};
  return text::Tokenizer::from_merges({}, special);
}

inline model::ModelConfig tiny_model(model::Arch arch = model::Arch::gpt2) {
  return {.name = "test",
          .arch = arch,
          .layers = 2,
          .heads = 2,
          .kv_heads = 2,
          .d_model = 16,
          .d_ff = 32,
          .head_dim = 8,
          .vocab = 57,
          .padded_vocab = 64,
          .max_seq = arch == model::Arch::gpt2 ? 32 : 0,
          .tied_head = arch == model::Arch::gpt2};
}

inline std::unique_ptr<backends::Backend> backend_for(compile::EngineKind engine, int threads = 1) {
  const bool fused = engine == compile::EngineKind::fused;
  return backends::make_cpu_backend(fused ? backends::CpuKernels::fast : backends::CpuKernels::reference,
                                    threads);
}

inline TrainOptions tiny_options(const std::filesystem::path& out, std::int64_t steps) {
  TrainOptions options;
  options.out = out;
  options.batch = 2;
  options.seq = 8;
  options.schedule = {
      .kind = ScheduleKind::cosine, .lr = 1e-2, .min_lr = 1e-3, .warmup_steps = 2, .steps = steps};
  options.eval_every = 0;
  options.eval_batches = 2;
  return options;
}

/// Runs a training; what it says goes nowhere.
inline TrainSummary run_training(const model::ModelConfig& config, const TrainOptions& options,
                                 const TrainingData& data, const TrainStart& start = {}, int threads = 1) {
  const auto backend = backend_for(options.step.engine, threads);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> quiet(std::fopen("/dev/null", "w"), std::fclose);
  return Trainer(*backend, config, options, data, start, quiet.get()).run();
}

/// Training and validation shards in `directory`.
inline TrainingData tiny_data(const ScratchDirectory& directory) {
  TrainingData data;
  data.train = {write_shard(directory / "train_000000.bin", 500, 57, 1),
                write_shard(directory / "train_000001.bin", 300, 57, 2)};
  data.val = {write_shard(directory / "val_000000.bin", 120, 57, 3)};
  data.given = {directory.path()};
  return data;
}

}  // namespace rooflm::train::testing
