// Operations as formulas: given where they make the counted number, and nowhere else.
#include "report/model/work_formula.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "report/views/views.h"
#include "tests/report/step_record.h"

namespace rooflm::report {
namespace {

/// B=2 T=32 C=64 F=256 H=4 D=16 V=100 N=1000, 3 layers.
RunData run_of(const char* arch = "gpt2", std::int64_t kv_heads = 4) {
  RunData run;
  run.run.config.set("arch", arch);
  for (const auto& [key, value] : {std::pair<const char*, std::int64_t>{"batch", 2},
                                   {"seq", 32},
                                   {"d_model", 64},
                                   {"d_ff", 256},
                                   {"heads", 4},
                                   {"vocab", 100},
                                   {"params", 1000},
                                   {"layers", 3}}) {
    run.run.config.set(key, value);
  }
  run.run.config.set("kv_heads", kv_heads);
  return run;
}

std::string formula(const RunData& run, const std::string& part, std::int64_t matmul, std::int64_t others,
                    bool is_layered = true) {
  Group group;
  group.phase = "forward";
  group.name = part;
  group.work.matmul_flop = matmul;
  group.work.elementwise_flop = others;
  return flop_formula(run, group, is_layered);
}

TEST(WorkFormula, SaysTheOperationsOfBlocks) {
  const RunData run = run_of();
  const std::int64_t btc = 2 * 32 * 64;
  EXPECT_EQ(formula(run, "attention/qkv", 3 * 2 * btc * 3 * 64, 3 * 3 * btc), "3 x 2 B T C 3C + 3 x 3 B T C");
  EXPECT_EQ(formula(run, "attention/flash", 3LL * 4 * 2 * 4 * 32 * 32 * 16, 3LL * 5 * 2 * 4 * 32 * 32),
            "3 x 4 B H T T D + 3 x 5 B H T T");
  EXPECT_EQ(formula(run, "feed_forward/fc1", 3 * 4 * btc * 256, 0), "3 x 4 B T C F");
  EXPECT_EQ(formula(run, "ln1", 0, (4 + 5 + 5) * btc), "14 B T C") << "the first layer's norm adds nothing";
  EXPECT_EQ(formula(run, "embedding", 0, 0, false), "0");
  EXPECT_EQ(formula(run, "lm_head", 2 * btc * 100, 0, false), "2 B T C V");
  EXPECT_EQ(formula(run, "loss", 0, 4 * 64 * 100 + 64, false), "4 B T V + B T");
  EXPECT_EQ(formula(run, "optimizer", 0, 16 * 1000 + 1, false), "16 N + 1");
  RunData padded = run_of();
  padded.run.config.set("padding", std::int64_t{24});
  EXPECT_EQ(formula(padded, "optimizer", 0, 16 * 1024 + 1, false), "16 (N + padding) + 1");
  EXPECT_EQ(formula(run_of("llama"), "feed_forward/fc1", 3 * 2 * btc * 512, 0), "3 x 2 B T C 2F");
  EXPECT_EQ(formula(run_of("llama", 2), "attention/qkv", 3LL * 2 * btc * (4 + 2 * 2) * 16, 0),
            "3 x 2 B T C (H + 2K) D");
}

TEST(WorkFormula, IsGivenOnlyWhereItMakesTheNumber) {
  const std::int64_t btc = 2 * 32 * 64;
  EXPECT_EQ(formula(run_of(), "attention/qkv", 3 * 2 * btc * 3 * 64 + 1, 0), "");
  EXPECT_EQ(formula(run_of(), "attention/qkv", 200 * 3 * btc * 3 * 64, 0), "") << "no small multiple";
  EXPECT_EQ(formula(run_of(), "somebody/elses", 10, 0), "");
  EXPECT_EQ(formula(RunData(), "lm_head", 10, 0, false), "") << "no configuration";
  RunData huge = run_of();
  huge.run.config.set("d_model", std::numeric_limits<std::int64_t>::max());
  huge.run.config.set("batch", std::int64_t{-5});
  EXPECT_EQ(formula(huge, "lm_head", 10, 0, false), "");
}

std::string activations(const RunData& run, const std::string& part, std::int64_t elements) {
  Group group;
  group.name = part;
  return element_formula(run, group, elements, true);
}

TEST(WorkFormula, SaysTheActivationsOfBlocks) {
  const RunData run = run_of();
  const std::int64_t btc = 2 * 32 * 64;
  const std::int64_t scores = 2 * 4 * 32 * 32;
  EXPECT_EQ(activations(run, "attention/qkv", 3 * 3 * btc), "3 x B T 3C");
  EXPECT_EQ(activations(run, "attention/qk", 3 * scores), "3 x B H T T");
  EXPECT_EQ(activations(run, "attention/softmax", 3 * scores), "3 x B H T T");
  EXPECT_EQ(activations(run, "attention/v", 3 * btc), "3 x B T C");
  EXPECT_EQ(activations(run, "attention/flash", 3 * (btc + 2 * 32 * 4)), "3 x B T C + 3 x B T H");
  EXPECT_EQ(activations(run, "feed_forward/fc1", 3 * 4 * btc), "3 x B T F");
  EXPECT_EQ(activations(run, "feed_forward/fc2", 3 * btc), "3 x B T C");
  EXPECT_EQ(activations(run, "attention/qk", 3 * scores + 1), "") << "not the number";
  RunData wide = run_of();
  wide.run.config.set("head_dim", std::int64_t{32});
  EXPECT_EQ(activations(wide, "attention/qkv", 3 * 6 * btc), "3 x B T 3 H D");
  EXPECT_EQ(formula(wide, "attention/proj", 3LL * 2 * 2 * btc * 64, 0), "3 x 2 B T H D C");
}

TEST(WorkFormula, IsAColumnOfAViewWithTheRidge) {
  const RecordSet set = load_steps({{.seq = 10}});
  const View view = make_view("operations", set);
  ASSERT_EQ(view.tables.size(), 1U);
  const Row& qkv = view.tables[0].table.rows.at(1);
  EXPECT_EQ(qkv.text("part"), "attention/qkv");
  // 1e10 flop/s over 1e9 byte/s; of 2 layers 1000 ns: 10 flop and 3 bytes each, fp32.
  EXPECT_DOUBLE_EQ(qkv.number("ridge"), 10);
  EXPECT_DOUBLE_EQ(qkv.number("elements"), 10) << "its activation has 40 bytes";
  EXPECT_EQ(qkv.text("side"), "memory");
  EXPECT_EQ(qkv.text("operations"), "") << "the record has no width";
}

}  // namespace
}  // namespace rooflm::report
