// Options of a run and of one that continues it.
#include "train/train_options.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "core/error.h"

namespace rooflm::train {
namespace {

TrainOptions example() {
  TrainOptions o;
  o.out = "out";
  o.step.micro_batches = 3;
  o.step.engine = compile::EngineKind::eager;
  o.step.attention = passes::AttentionKind::looped;
  o.step.dtype = core::DType::bf16;
  o.step.optimizer.beta2 = 0.999;
  o.schedule = {.kind = ScheduleKind::wsd, .lr = 0.1 + 0.2, .min_lr = 1e-7, .warmup_steps = 5, .steps = 77};
  o.prompt = "Once upon\na time";
  o.seed = 0xFFFFFFFFFFFFFFFF;
  return o;
}

auto given(std::set<std::string> names) {
  return [names = std::move(names)](const std::string& name) { return names.contains(name); };
}

TEST(TrainOptions, SurviveAsText) {
  const OptionTexts texts = to_texts(example());
  TrainOptions read;
  for (const OptionField& field : option_fields()) field.set(read, texts.at(field.name));
  EXPECT_EQ(to_texts(read), texts);
  EXPECT_EQ(read.schedule, example().schedule);
  EXPECT_EQ(read.seed, example().seed);
  EXPECT_EQ(read.prompt, example().prompt);
  EXPECT_EQ(read.step.dtype, core::DType::bf16);
}

TEST(TrainOptions, WhatIsNotGivenIsRemembered) {
  TrainOptions now;
  now.keep = 7;
  now.batch = 99;
  const TrainOptions o = continued(now, to_texts(example()), given({"keep"}), "ckpt");
  EXPECT_EQ(o.keep, 7);
  EXPECT_EQ(o.batch, example().batch);
  EXPECT_EQ(o.schedule, example().schedule);
}

TEST(TrainOptions, ContradictionsAreRefused) {
  for (const OptionField& field : option_fields()) {
    TrainOptions now = example();
    const std::map<std::string, std::string> words = {{"engine", "fused"},
                                                      {"routing", "random"},
                                                      {"attention", "flash"},
                                                      {"dtype", "fp32"},
                                                      {"optimizer", "sgd"},
                                                      {"schedule", "linear"},
                                                      {"recompute", "full"},
                                                      {"fp8-gradients", "e5m2"},
                                                      {"fp8-scaling", "current"},
                                                      {"pipeline-schedule", "gpipe"},
                                                      {"sequence-parallel", "yes"},
                                                      {"dp", "2"},
                                                      {"fp8-fast-sums", "all"},
                                                      {"checkpoint-layout", "parts"},
                                                      {"fp8-weights", "keep"},
                                                      {"states", "8bit"},
                                                      {"base", "nf4"}};
    const auto word = words.find(field.name);
    const std::string other = word == words.end() ? "7" : word->second;
    field.set(now, other);
    const auto all = given({field.name});
    if (!field.is_fixed) {
      EXPECT_NO_THROW(continued(now, to_texts(example()), all, "ckpt")) << field.name;
      continue;
    }
    try {
      continued(now, to_texts(example()), all, "ckpt");
      FAIL() << field.name;
    } catch (const core::UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("--" + field.name + " "), std::string::npos) << error.what();
    }
  }
}

/// Checkpoints from before fp8 could be trained were trained without.
TEST(TrainOptions, OlderCheckpointsContinue) {
  OptionTexts texts = to_texts(example());
  std::erase_if(texts, [](const auto& text) {
    return text.first.starts_with("fp8-") || text.first == "checkpoint-layout" || text.first == "momentum" ||
           text.first == "states" || text.first == "lora" || text.first == "base" ||
           text.first == "routing" || text.first.starts_with("expert-");
  });
  EXPECT_EQ(to_texts(continued(example(), texts, given({}), "ckpt")), to_texts(example()));
  TrainOptions e5m2 = example();
  e5m2.step.fp8_options.gradients = passes::Fp8Gradients::e5m2;
  EXPECT_THROW(continued(e5m2, texts, given({"fp8-gradients"}), "ckpt"), core::UsageError);
}

TEST(TrainOptions, Fp8IsBf16WithScaledProducts) {
  TrainOptions fp8 = example();
  fp8.step.fp8 = true;
  fp8.step.fp8_options = {.scaling = passes::Fp8Scaling::current};
  const TrainOptions read = continued(example(), to_texts(fp8), given({}), "ckpt");
  EXPECT_TRUE(read.step.fp8);
  EXPECT_EQ(read.step.dtype, core::DType::bf16);
  EXPECT_EQ(read.step.fp8_options, fp8.step.fp8_options);
}

/// The sequences of a step stay as many, whoever has them.
TEST(TrainOptions, CopiesShareTheSequencesOfAStepOut) {
  TrainOptions before = example();
  before.batch = 8;
  before.step.micro_batches = 3;
  TrainOptions now = before;
  now.step.sharding.data = 4;
  EXPECT_EQ(continued(now, to_texts(before), given({"dp"}), "ckpt").batch, 2);
  now.step.micro_batches = 6;
  EXPECT_EQ(continued(now, to_texts(before), given({"dp", "grad-accum"}), "ckpt").batch, 1);
  now.step.sharding.data = 5;
  EXPECT_THROW(continued(now, to_texts(before), given({"dp"}), "ckpt"), core::UsageError);
  now.step.sharding.data = 1;
  EXPECT_THROW(continued(now, to_texts(before), given({"dp", "grad-accum"}), "ckpt"), core::UsageError);
}

/// Ranks that share sequences need it; other splits keep what was trained with.
TEST(TrainOptions, RanksThatBeginToShareSequencesTakeFlashAttention) {
  const TrainOptions before = example();
  TrainOptions now = before;
  EXPECT_EQ(continued(now, to_texts(before), given({}), "ckpt").step.attention, before.step.attention);
  now.step.sharding.context = 2;
  EXPECT_EQ(continued(now, to_texts(before), given({"cp"}), "ckpt").step.attention,
            passes::AttentionKind::flash);
  now.step.attention = passes::AttentionKind::flash;
  EXPECT_EQ(continued(now, to_texts(before), given({"cp", "attention"}), "ckpt").step.attention,
            passes::AttentionKind::flash);
  now.step.attention = passes::AttentionKind::batched;
  EXPECT_THROW(continued(now, to_texts(before), given({"cp", "attention"}), "ckpt"), core::UsageError);
  now.step.sharding.context = 1;
  now.step.sharding.tensor = 2;
  now.step.attention = passes::AttentionKind::flash;
  EXPECT_THROW(continued(now, to_texts(before), given({"tp", "attention"}), "ckpt"), core::UsageError);
}

/// Products of degrees that no number holds are refused later, by name; until then they must do no harm.
TEST(TrainOptions, DegreesBeyondAnyJobLeaveOneCopy) {
  TrainOptions now = example();
  now.step.sharding.context = now.step.sharding.tensor = now.step.sharding.pipeline = 1 << 24;
  EXPECT_EQ(continued(now, to_texts(example()), given({"cp", "tp", "pp"}), "ckpt").step.sharding.data, 1);
}

/// Those of before there were ranks.
TEST(TrainOptions, OlderCheckpointsSayNothingOfASplit) {
  OptionTexts texts = to_texts(example());
  for (const char* name :
       {"dp", "zero", "cp", "tp", "sequence-parallel", "pp", "pipeline-schedule", "interleave"})
    EXPECT_EQ(texts.erase(name), 1U) << name;
  EXPECT_EQ(continued(example(), texts, given({}), "ckpt").step.sharding, compile::Sharding{});
}

TEST(TrainOptions, AConstantScheduleMayGoOnLonger) {
  TrainOptions before = example();
  TrainOptions now = before;
  now.schedule.steps = 100;
  EXPECT_THROW(continued(now, to_texts(before), given({"steps"}), "ckpt"), core::UsageError);
  before.schedule.kind = now.schedule.kind = ScheduleKind::constant;
  EXPECT_EQ(continued(now, to_texts(before), given({"steps"}), "ckpt").schedule.steps, 100);
}

TEST(TrainOptions, DamagedTextsAreRefused) {
  OptionTexts texts = to_texts(example());
  texts["batch"] = "2x";
  EXPECT_THROW(continued(example(), texts, given({}), "ckpt"), core::InputError);
  texts.erase("batch");
  EXPECT_THROW(continued(example(), texts, given({}), "ckpt"), core::InputError);
}

TEST(TrainOptions, RangesAreChecked) {
  EXPECT_NO_THROW(validate(example()));
  const auto refuses = [](auto change) {
    TrainOptions o = example();
    change(o);
    EXPECT_THROW(validate(o), core::UsageError);
  };
  refuses([](TrainOptions& o) { o.batch = 0; });
  refuses([](TrainOptions& o) { o.keep = 0; });
  refuses([](TrainOptions& o) { o.step.optimizer.beta1 = 1; });
  refuses([](TrainOptions& o) { o.step.optimizer.clip_norm = -1; });
  refuses([](TrainOptions& o) { o.schedule.lr = 0; });
  refuses([](TrainOptions& o) { o.peak_flop_per_s = 0; });
  refuses([](TrainOptions& o) { o.out.clear(); });
}

}  // namespace
}  // namespace rooflm::train
