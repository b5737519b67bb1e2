// What a measured training step computes on: initial weights, and random tokens or a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engines/engine.h"
#include "lab/point.h"
#include "train/data_loader.h"

namespace rooflm::lab {

/// Writes the inputs of each step of an engine, which must outlive it.
class StepInputs {
 public:
  /// Initialises the weights from the seed and runs the engine's setup. With `shards` each step gets the next
  /// batch of that text, otherwise all get the same uniform random ids below the vocabulary. Throws
  /// core::InputError for damaged shards.
  StepInputs(engines::Engine& engine, const Point& point, std::uint64_t seed,
             const std::vector<std::filesystem::path>& shards = {});

  /// Inputs of step `step` (from 0): the optimizer's scalars, and the next batch.
  void write(int step);
  /// Inputs of the last step again, with a learning rate of 0: weights stay as they are, so that forward and
  /// backward pass repeat bit for bit. The optimizer's moments go on.
  void hold();
  /// Time that `write` waited for the loader so far, per step; 0 without text.
  [[nodiscard]] double loader_wait_s() const { return batches_ > 0 ? waited_s_ / batches_ : 0; }

 private:
  void write_adapters(std::uint64_t seed);
  void write_random_tokens(std::uint64_t seed);
  void write_routing();
  void write_next_batch();
  void write_ids(const std::string& name, std::span<const std::int32_t> ids);
  void write_hyper(double learning_rate);

  engines::Engine* engine_;
  const Point* point_;
  std::unique_ptr<train::DataLoader> loader_;
  double waited_s_ = 0;
  int batches_ = 0;
  int step_ = 0;
};

}  // namespace rooflm::lab
