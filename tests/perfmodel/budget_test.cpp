// Runs with failures, and devices that are other than those of the catalog.
#include "perfmodel/budget.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "perfmodel/op_times.h"
#include "program/fp8.h"
#include "program/ops.h"

namespace rooflm {
namespace {

TEST(Goodput, TheIntervalIsTheBestOne) {
  for (const double mtbf_s : {600.0, 3600.0, 1e6}) {
    for (const double checkpoint_s : {1.0, 30.0, 200.0}) {
      SCOPED_TRACE(mtbf_s);
      const auto best = perfmodel::goodput(mtbf_s, checkpoint_s, 60);
      EXPECT_GT(best.share, 0);
      EXPECT_LT(best.share, 1);
      for (const double factor : {0.5, 2.0}) {
        const double interval_s = factor * best.interval_s;
        const double share =
            interval_s / (mtbf_s * std::exp(60 / mtbf_s) * std::expm1((interval_s + checkpoint_s) / mtbf_s));
        EXPECT_LT(share, best.share);
      }
    }
  }
}

TEST(Goodput, RareFailuresCostWhatYoungSays) {
  // 1 - sqrt(2 C / M): Young, 1974.
  const auto rare = perfmodel::goodput(1e6, 10, 0);
  EXPECT_NEAR(rare.share, 1 - std::sqrt(2 * 10 / 1e6), 1e-4);
  EXPECT_NEAR(rare.interval_s, std::sqrt(2 * 10 * 1e6), 15);
}

TEST(Goodput, AClusterThatFailsAllTheTimeDoesNothing) {
  EXPECT_LT(perfmodel::goodput(1, 100, 300).share, 1e-6);
}

TEST(WhatIf, IsReadAndWritten) {
  const auto what_if = perfmodel::parse_what_if("bandwidth=2x,link=0.5");
  EXPECT_EQ(what_if.bandwidth, 2);
  EXPECT_EQ(what_if.link, 0.5);
  EXPECT_EQ(text_of(what_if), "bandwidth=2x,link=0.5x");
  for (const char* bad : {"", "bandwidth", "bandwidth=", "bandwidth=0x", "bandwidth=-1x", "bandwith=2x",
                          "link=nanx", "link=2x,", "link=1e9x", "link=2x,link=3x"})
    EXPECT_THROW(perfmodel::parse_what_if(bad), core::UsageError) << bad;
}

program::Program product_of(std::int64_t n, core::DType dtype) {
  program::Program program;
  for (int i = 0; i < 2; ++i)
    program.add_tensor({.shape = {n, n}, .dtype = dtype, .role = program::Role::input});
  program::Op op;
  op.def = &program::ops::kMatmul;
  op.inputs = {0, 1};
  if (core::is_fp8(dtype)) {
    const program::TensorId slot =
        program.add_tensor({.shape = {program::kFp8Slot}, .role = program::Role::input});
    op.inputs.insert(op.inputs.end(), {program::kNone, slot, slot});
  }
  op.attrs = {
      {"batch", 1},          {"m", n},         {"n", n}, {"k", n}, {"trans_a", false}, {"trans_b", true},
      {"accumulate", false}, {"looped", false}};
  const program::TensorId c = program.append(std::move(op), "c").at(0);
  program.tensor(c).dtype = core::DType::bf16;
  return program;
}

/// A second of kernels that were measured alone, at the clock of the tables.
perfmodel::PowerMix kernels_of(double flop_per_s, double byte_per_s, double hz, double joule_per_flop) {
  const perfmodel::OpTimes times(devices::find_device("h100-sxm"), {});
  const double clocks = times.power().table_hz / hz;
  return {.arithmetic = {{perfmodel::kAnyClock, {1, flop_per_s * clocks * joule_per_flop}}},
          .byte_j = byte_per_s * clocks * times.tables().energies.joule_per_byte};
}

/// GEMMs and attention alone: the clocks that 690 W left to them.
TEST(Power, TheLawGoesThroughWhatWasMeasured) {
  const perfmodel::OpTimes times(devices::find_device("h100-sxm"), {});
  perfmodel::PowerLaw law = times.power();
  EXPECT_EQ(law.limit_w, 700);
  law.limit_w = 690;
  const perfmodel::OpEnergies& energies = times.tables().energies;
  const auto gemms = kernels_of(686.7e12, 257e9, 1.365e9, energies.joule_per_flop.at("bf16"));
  EXPECT_NEAR(perfmodel::clock_share(law, gemms) * law.table_hz, 1.365e9, 0.005e9);
  law.limit_w = 684;
  const auto attention =
      kernels_of(500.2e12, 488e9, 1.695e9, perfmodel::interpolate(energies.attention_forward, 128));
  EXPECT_NEAR(perfmodel::clock_share(law, attention) * law.table_hz, 1.695e9, 0.005e9);
  law.limit_w = 686;
  const auto narrow =
      kernels_of(220.0e12, 215e9, 1.935e9, perfmodel::interpolate(energies.attention_forward, 32));
  EXPECT_NEAR(perfmodel::clock_share(law, narrow) * law.table_hz, 1.935e9, 0.005e9);
  // A step of gpt2 (B=32, T=1024): of 58.1 ms at 688 W and 1.70 GHz, 27.4 TFLOP on tensor cores, DRAM busy
  // for 14 ms.
  law.limit_w = 688;
  const perfmodel::PowerMix gpt2{
      .arithmetic = {{perfmodel::kAnyClock, {46e-3, 27.4e12 * energies.joule_per_flop.at("bf16")}}},
      .other_s = 12e-3,
      .byte_j = 14e-3 * 3.35e12 * energies.joule_per_byte};
  EXPECT_NEAR(perfmodel::clock_share(law, gpt2) * law.table_hz, 1.70e9, 0.15e9);
}

TEST(Power, EnergiesOfHeadsAreInterpolated) {
  const std::map<double, double> points{{32, 2.0}, {128, 1.0}};
  EXPECT_EQ(perfmodel::interpolate({}, 64), 0);
  EXPECT_EQ(perfmodel::interpolate(points, 16), 2);
  EXPECT_EQ(perfmodel::interpolate(points, 32), 2);
  EXPECT_DOUBLE_EQ(perfmodel::interpolate(points, 64), 1.5);
  EXPECT_EQ(perfmodel::interpolate(points, 256), 1);
}

TEST(Power, ALowerLimitLowersTheClockAndMovingBytesTakesPower) {
  perfmodel::PowerLaw law = perfmodel::OpTimes(devices::find_device("h100-sxm"), {}).power();
  const perfmodel::PowerMix busy{
      .arithmetic = {{perfmodel::kAnyClock, {0.9, 500}}}, .other_s = 0.1, .byte_j = 50};
  const double at_700 = perfmodel::clock_share(law, busy);
  perfmodel::PowerMix moving = busy;
  moving.byte_j = 100;
  EXPECT_LT(perfmodel::clock_share(law, moving), at_700);
  law.limit_w = 500;
  EXPECT_LT(perfmodel::clock_share(law, busy), 0.8 * at_700);
  const perfmodel::PowerMix idle{
      .arithmetic = {{perfmodel::kAnyClock, {0.1, 20}}}, .other_s = 0.9, .byte_j = 100};
  EXPECT_DOUBLE_EQ(perfmodel::clock_share(law, idle), law.max_hz / law.table_hz);
  EXPECT_EQ(perfmodel::clock_share({}, busy), 1);
  // A chip that was never measured has shares of its peak that were seen at its own limit.
  EXPECT_FALSE(perfmodel::OpTimes(devices::find_device("a100-sxm"), {}).power().is_known());
  EXPECT_EQ(perfmodel::OpTimes(devices::find_device("h100-sxm-96gb"), {}).power().limit_w, 500);
}

/// GEMMs between pauses, whose clock read 1.98 GHz: 818 and 1,577 TFLOP/s of 16384 x 4096 x 14336. Small ones
/// stop following the clock where large ones do.
TEST(Power, GemmsGainNothingFromTheHighestClocks) {
  const perfmodel::OpTimes times(devices::find_device("h100-sxm"), {});
  for (const auto& [dtype, rate] : {std::pair{core::DType::bf16, 818e12}, {core::DType::f8, 1577e12}}) {
    const auto product = product_of(8192, dtype);
    const auto time = times.time_of(product, product.ops[0]);
    const double fastest = times.power().max_hz / times.power().table_hz;
    EXPECT_LT(time.most_share, fastest);
    const double seconds = perfmodel::OpTimes::at_clock(time, fastest);
    EXPECT_EQ(seconds, perfmodel::OpTimes::at_clock(time, time.most_share));
    EXPECT_NEAR(2 * std::pow(8192.0, 3) / (seconds - time.launch_s) / rate, 1, 0.05);
    const auto small = product_of(512, dtype);
    EXPECT_EQ(times.time_of(small, small.ops[0]).most_share, time.most_share);
  }
  // Of a mix, only what gains gets shorter.
  const perfmodel::PowerMix mix{.arithmetic = {{1.1, {1, 0}}, {perfmodel::kAnyClock, {1, 0}}}, .other_s = 1};
  EXPECT_DOUBLE_EQ(mix.seconds_at(1.25), 1 / 1.1 + 1 / 1.25 + 1);
}

/// What a copy took on the SXM is more than the limit of an NVL: no board is built so.
TEST(Power, OtherBoardsOfTheChipCanStream) {
  const auto watt_of_copy = [](const char* key) {
    const perfmodel::OpTimes times(devices::find_device(key), {});
    const auto vectors = product_of(1, core::DType::bf16);
    const auto time = times.time_of(vectors, vectors.ops[0]);
    return times.power().static_w + time.byte_j / time.moved_s;
  };
  for (const char* key : {"h100-nvl", "h100-pcie"}) {
    const double limit_w = *devices::find_device(key).power_w;
    EXPECT_LE(watt_of_copy(key), 0.81 * limit_w) << key;
  }
  const auto joule = [](const char* key) {
    return perfmodel::OpTimes(devices::find_device(key), {}).tables().energies.joule_per_byte;
  };
  EXPECT_EQ(joule("h100-sxm-96gb"), joule("h100-sxm"));
  EXPECT_EQ(joule("h200"), joule("h100-sxm"));
}

/// Whatever a mix takes, no limit stops the clock; and ops that bytes bind need one for their arithmetic.
TEST(Power, LowClocksShowArithmeticThatBytesHide) {
  perfmodel::PowerLaw law = perfmodel::OpTimes(devices::find_device("h100-sxm"), {}).power();
  const perfmodel::PowerMix moving{
      .arithmetic = {{perfmodel::kAnyClock, {0.1, 20}}}, .other_s = 0.9, .byte_j = 2000};
  EXPECT_NEAR(perfmodel::clock_share(law, moving), perfmodel::kLeastClock * law.max_hz / law.table_hz, 1e-9);
  const perfmodel::PowerMix mix{.hidden_s = {{0.5, 1}}, .other_s = 2};
  EXPECT_DOUBLE_EQ(mix.seconds_at(0.5), 2);
  EXPECT_DOUBLE_EQ(mix.seconds_at(0.25), 4);
  const perfmodel::OpTime op{.seconds = 2.5, .work_s = 1, .moved_s = 2, .hidden_s = 1, .launch_s = 0.5};
  EXPECT_EQ(perfmodel::OpTimes::at_clock(op, 0.5), 2.5);
  EXPECT_EQ(perfmodel::OpTimes::at_clock(op, 0.25), 4.5);
}

TEST(Fp8, IsFasterAndAssumedOnAMeasuredDevice) {
  const auto h100 = devices::find_device("h100-sxm");
  const perfmodel::OpTimes times(h100, {});
  const auto wide = product_of(8192, core::DType::bf16);
  const auto narrow = product_of(8192, core::DType::f8);
  const auto slow = times.time_of(wide, wide.ops[0]);
  const auto fast = times.time_of(narrow, narrow.ops[0]);
  EXPECT_LT(fast.seconds, 0.65 * slow.seconds);
  EXPECT_GT(fast.seconds, 0.5 * slow.seconds);
  EXPECT_EQ(slow.basis, perfmodel::Basis::calibrated);
  EXPECT_EQ(fast.basis, perfmodel::Basis::assumed);
  EXPECT_GT(fast.spread, slow.spread);
  const auto e5m2 = product_of(8192, core::DType::f8_e5m2);
  EXPECT_EQ(times.time_of(e5m2, e5m2.ops[0]).seconds, fast.seconds);
  const auto a100 = devices::find_device("a100-sxm");
  EXPECT_THROW((void)perfmodel::OpTimes(a100, {}).time_of(narrow, narrow.ops[0]), core::Unavailable);
}

TEST(WhatIf, TwiceTheRateHalvesProducts) {
  const auto h100 = devices::find_device("h100-sxm");
  const auto program = product_of(16384, core::DType::bf16);
  const auto now = perfmodel::OpTimes(h100, {}).time_of(program, program.ops[0]);
  const auto then = perfmodel::OpTimes(h100, {}, {.compute = 2}).time_of(program, program.ops[0]);
  EXPECT_NEAR(now.seconds / then.seconds, 2, 0.1);
  EXPECT_EQ(then.basis, perfmodel::Basis::assumed);
}

}  // namespace
}  // namespace rooflm
