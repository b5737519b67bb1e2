// Kernels of JAX programs, aligned with the instructions that XLA made, and facts that are lies.
#include "foreign/xla_ops.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rooflm::foreign {
namespace {

using inject::Row;
using inject::RowKind;

TEST(NameScopes, AreWhatIsLeftOfTheNamesOfOperations) {
  EXPECT_EQ(path_of_name_scopes("jit(step)/jit(main)/transpose(jvp(Model))/layers_3/attn/dot_general"),
            "Model.layers.3.attn");
  EXPECT_EQ(path_of_name_scopes("jit(step)/jvp()/while/body/closed_call/mul"), "");
  EXPECT_EQ(path_of_name_scopes("jit(step)/jvp(vmap(mlp))/checkpoint/rematted_computation/up/add"), "mlp.up");
  EXPECT_EQ(path_of_name_scopes(""), "");
}

class XlaOpsTest : public testing::Test {
 protected:
  void instruction(const std::string& name, const std::string& op, const std::string& call = "fusion",
                   double flop = 0) {
    facts_["hlo 0"] = "jit_step";
    facts_["hlo 0 " + std::to_string(count_++)] =
        R"({"name":")" + name + R"(","call":")" + call + R"(","op":")" + op +
        R"(","at":"train.py:7","dtype":"bf16","flop":)" + std::to_string(flop) + R"(,"needed":)" +
        std::to_string(flop) + R"(,"bytes":64,"shapes":"[8]"})";
  }
  void execution(const std::vector<std::string>& kernels) {
    rows_.push_back({.kind = RowKind::range,
                     .name = text("XlaModule:#hlo_module=jit_step#"),
                     .start_ns = at_,
                     .end_ns = at_ + 100,
                     .place = 7});
    for (const std::string& kernel : kernels)
      launches_.push_back({.call_ns = at_ + 10, .thread = 7, .name = text(kernel)});
    at_ += 1000;
  }
  std::uint32_t text(const std::string& text) {
    for (const auto& [number, known] : texts_) {
      if (known == text) return number;
    }
    const auto number = static_cast<std::uint32_t>(texts_.size() + 1);
    texts_[number] = text;
    return number;
  }
  /// "h.0/mlp:1000 ...": of each launch the scope, and the FLOP where it has a price.
  std::string found() {
    const XlaOps found = find_xla_ops(rows_, texts_, facts_, launches_);
    std::string line;
    for (std::size_t i = 0; i < found.op_of.size(); ++i) {
      line += (line.empty() ? "" : " ");
      line += found.op_of[i] ? found.ops.at(static_cast<std::size_t>(*found.op_of[i])).scope : "none";
      if (found.work_of[i]) {
        line += ":" + std::to_string(static_cast<std::int64_t>(
                          found.works.at(static_cast<std::size_t>(*found.work_of[i])).matmul_flop));
      }
    }
    return line;
  }

  std::map<std::string, std::string> facts_;
  std::unordered_map<std::uint32_t, std::string> texts_;
  std::vector<Row> rows_;
  std::vector<Launch> launches_;
  std::uint64_t at_ = 1000;
  int count_ = 0;
};

TEST_F(XlaOpsTest, IdenticalInstructionsShareAKernelAndAreToldApartByTheirOrder) {
  instruction("loop_add_fusion", "jit(f)/jvp(layers_0)/add");
  instruction("gemm_fusion_dot_3", "jit(f)/jvp(layers_0)/mlp/dot", "fusion", 10);
  instruction("loop_add_fusion_1", "jit(f)/jvp(layers_1)/add");
  instruction("gemm_fusion_dot_4", "jit(f)/jvp(layers_1)/mlp/dot", "fusion", 20);
  execution({"loop_add_fusion", "gemm_fusion_dot_3", "loop_add_fusion", "gemm_fusion_dot_3"});
  EXPECT_EQ(found(), "h.0/itself:0 h.0/mlp:10 h.1/itself:0 h.1/mlp:20");
}

TEST_F(XlaOpsTest, CallsOfLibrariesHaveKernelsOfOtherNames) {
  instruction("loop_add_fusion", "jit(f)/a/add");
  instruction("custom_call_1", "jit(f)/b/dot", "__cublas$gemm", 30);
  instruction("loop_mul_fusion", "jit(f)/c/mul");
  execution({"loop_add_fusion", "nvjet_tst_64x64", "splitKreduce_kernel", "loop_mul_fusion"});
  EXPECT_EQ(found(), "a:0 b:30 b c:0");
}

TEST_F(XlaOpsTest, WithoutScopesThereIsTheLine) {
  instruction("loop_add_fusion", "jit(f)/add");
  execution({"loop_add_fusion"});
  execution({"loop_add_fusion"});
  EXPECT_EQ(found(), "train.py:7:0 train.py:7:0");
}

TEST_F(XlaOpsTest, OtherProgramsAndLiesAreLeftOut) {
  execution({"loop_add_fusion"});
  EXPECT_EQ(found(), "") << "nothing is known";
  facts_["hlo 0"] = "jit_other";
  EXPECT_EQ(found(), "none");
  for (const char* lie : {"", "{", "7", R"({"name":1})",
                          R"({"name":"loop_add_fusion","call":"","op":"","at":"",)"
                          R"("dtype":"","flop":-1,"needed":0,"bytes":1,"shapes":""})"}) {
    facts_["hlo 0"] = "jit_step";
    facts_["hlo 0 0"] = lie;
    EXPECT_EQ(found(), "none") << lie;
  }
}

}  // namespace
}  // namespace rooflm::foreign
