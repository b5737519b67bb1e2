// Every gradient rule and backward kernel of the reference against central differences, in fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "backends/cpu/cpu_backend.h"
#include "compile/passes/cast.h"
#include "program/ops.h"
#include "tests/backends/op_cases.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {
namespace {

using program::Role;
using program::TensorId;

/// The loss: sum over the outputs of <projection, output>.
double loss_of(const OpRunner& runner, const Case& c, const std::map<TensorId, TensorId>& gradients) {
  double loss = 0;
  for (const TensorId output : c.outputs) {
    const auto values = runner.read(output);
    const auto projection = runner.read(gradients.at(output));
    for (std::size_t i = 0; i < values.size(); ++i) loss += values[i] * projection[i];
  }
  return loss;
}

/// The difference quotient is off by h^2 times a third derivative and by rounding over h: 1e-8 together.
void check_gradients(Case c) {
  SCOPED_TRACE(c.name);
  const std::size_t forward_ops = c.program.ops.size();
  const auto gradients = append_backward(c);
  passes::cast(c.program, core::DType::f64);
  const auto backend = backends::make_cpu_backend(backends::CpuKernels::reference, 2);
  OpRunner runner(c, *backend);
  runner.run_all();

  std::set<TensorId> written;
  for (std::size_t i = 0; i < forward_ops; ++i) {
    written.insert(c.program.ops[i].outputs.begin(), c.program.ops[i].outputs.end());
  }
  int checked = 0;
  for (const auto& pair : gradients) {
    const TensorId id = pair.first;  // clang 14 captures no bindings
    const TensorId gradient = pair.second;
    if (written.contains(id)) continue;  // an input or a weight
    const auto analytic = runner.read(gradient);
    const auto original = runner.read(id);
    for (std::size_t i = 0; i < original.size(); ++i) {
      constexpr double kStep = 1e-5;
      const auto loss_at = [&](double value) {
        auto changed = original;
        changed[i] = value;
        runner.write(id, changed);
        for (std::size_t op = 0; op < forward_ops; ++op) runner.run(op);
        return loss_of(runner, c, gradients);
      };
      const double numeric = (loss_at(original[i] + kStep) - loss_at(original[i] - kStep)) / (2 * kStep);
      ASSERT_NEAR(analytic[i], numeric, 1e-7 * std::max(1.0, std::abs(numeric)))
          << "d " << c.program.tensor(id).name << "[" << i << "]";
      ++checked;
    }
    runner.write(id, original);
  }
  EXPECT_GT(checked, 0);
}

TEST(CpuGradient, EveryRuleMatchesCentralDifferences) {
  for (const Case& c : all_cases(kTiny)) {
    if (!c.outputs.empty()) check_gradients(c);
  }
}

/// More rows than the reference takes at a time.
TEST(CpuGradient, FlashAttentionOfSeveralBlocks) {
  const Sizes sizes{"blocks", 1, 35, 7, 9, 2, 1, 4, 11, 13};
  for (const char* name : {"flash_attention grouped", "flash_attention window", "flash_attention everything"})
    check_gradients(find_case(sizes, name));
}

TEST(CpuGradient, CasesCoverEveryGradientRule) {
  std::set<std::string_view> differentiated;
  for (const Case& c : all_cases(kTiny)) {
    if (c.outputs.empty()) continue;
    for (const auto& op : c.program.ops) differentiated.insert(op.def->name);
  }
  for (const program::OpDef* def : program::ops::all()) {
    if (is_of_split_steps(*def)) continue;
    EXPECT_EQ(def->gradient != nullptr, differentiated.contains(def->name)) << def->name;
  }
}

}  // namespace
}  // namespace rooflm::tests
