// Packed weights: losses are those of the numbers that codes stand for, files keep codes, GPTQ beats
// rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.h"
#include "core/packed_weights.h"
#include "model/forward.h"
#include "model/parameters.h"
#include "model/quantized_files.h"
#include "train/checkpoint.h"
#include "train/gptq.h"
#include "train/session.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

using compile::EngineKind;
using core::WeightFormat;

constexpr WeightFormat kAll[] = {WeightFormat::bf16, WeightFormat::int8, WeightFormat::int4,
                                 WeightFormat::nf4,  WeightFormat::fp8,  WeightFormat::sparse};

/// Rows of 128 and 256, which all formats can hold.
model::ModelConfig wide_model(model::Arch arch) {
  model::ModelConfig config = testing::tiny_model(arch);
  config.d_model = 128;
  config.d_ff = 256;
  config.head_dim = 64;
  return config;
}

compile::StepOptions step_of(EngineKind engine, WeightFormat base, core::DType dtype = core::DType::f32) {
  compile::StepOptions step{
      .engine = engine, .attention = compile::default_attention(engine), .dtype = dtype};
  step.base = base;
  return step;
}

Batch some_batch(std::int64_t rows) {
  Batch batch;
  for (std::int64_t i = 0; i < rows * 8; ++i) {
    batch.tokens.push_back(static_cast<std::int32_t>(i * 5 % 23));
    batch.targets.push_back(static_cast<std::int32_t>((i + 1) * 5 % 23));
  }
  return batch;
}

double loss_of(Session& session, std::int64_t rows) { return session.loss(some_batch(rows)); }

/// A matmul multiplies what codes stand for, with few rows and with many.
TEST(PackedWeights, LossesAreThoseOfTheUnpackedWeights) {
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const auto backend = testing::backend_for(engine);
    for (const WeightFormat format : kAll) {
      for (const model::Arch arch : {model::Arch::gpt2, model::Arch::llama}) {
        for (const std::int64_t rows : {1, 5}) {
          const model::ModelConfig config = wide_model(arch);
          Session packed(*backend, config, step_of(engine, format));
          packed.make_loss_engine(rows, 8);
          packed.initialise(3);
          Session plain(*backend, config, step_of(engine, WeightFormat::plain));
          plain.make_loss_engine(rows, 8);
          plain.initialise(3);
          const double before = loss_of(plain, rows);
          std::int64_t packed_bytes = 0, plain_bytes = 0;
          for (const model::Parameter& p : model::parameters(config))
            plain.write_whole(p.name, packed.weight(p.name));
          for (const auto& [name, entry] : packed.store().entries())
            packed_bytes += static_cast<std::int64_t>(entry.memory.bytes());
          for (const auto& [name, entry] : plain.store().entries())
            plain_bytes += static_cast<std::int64_t>(entry.memory.bytes());
          const double loss = loss_of(packed, rows);
          EXPECT_NEAR(loss, loss_of(plain, rows), 2e-6)
              << name_of(format) << " " << name_of(engine) << " " << rows;
          EXPECT_NE(loss, before) << name_of(format);
          EXPECT_LT(packed_bytes, plain_bytes * 3 / 4) << name_of(format);
        }
      }
    }
  }
}

TEST(PackedWeights, SixteenBitActivationsReadThem) {
  const auto backend = testing::backend_for(EngineKind::fused);
  const model::ModelConfig config = wide_model(model::Arch::gpt2);
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16}) {
    for (const std::int64_t rows : {1, 5}) {
      Session packed(*backend, config, step_of(EngineKind::fused, WeightFormat::int8, dtype));
      packed.make_loss_engine(rows, 8);
      packed.initialise(3);
      Session plain(*backend, config, step_of(EngineKind::fused, WeightFormat::plain, dtype));
      plain.make_loss_engine(rows, 8);
      plain.initialise(3);
      EXPECT_NEAR(loss_of(packed, rows), loss_of(plain, rows), 5e-3) << core::name_of(dtype);
    }
  }
}

/// What the base's numbers give: adapters that are zero change nothing, and later losses are those of a base
/// with the unpacked numbers.
TEST(PackedWeights, AdaptersTrainBesideThem) {
  const auto backend = testing::backend_for(EngineKind::fused);
  const model::ModelConfig config = wide_model(model::Arch::llama);
  std::vector<std::pair<WeightFormat, const char*>> kinds;
  for (const WeightFormat format : kAll) {
    kinds.emplace_back(format, "4,targets=all-linear");
    kinds.emplace_back(format, "4,dora,targets=all-linear");
  }
  for (const auto& [format, lora] : kinds) {
    const auto losses = [&](WeightFormat base, const std::map<std::string, std::vector<float>>& weights,
                            std::map<std::string, std::vector<float>>& read) {
      compile::StepOptions step = step_of(EngineKind::fused, base);
      step.lora = lora;
      Session session(*backend, config, step);
      session.make_training_engine(4, 8);
      session.initialise(3);
      for (const auto& [name, values] : weights) session.write_whole(name, values);
      session.initialise_adapters(3);
      for (const model::Parameter& p : model::parameters(config)) read[p.name] = session.weight(p.name);
      std::vector<double> all;
      for (std::int64_t t = 1; t <= 4; ++t) {
        session.set_micro_batch(0, some_batch(4));
        all.push_back(session.update(1e-2, t).loss);
      }
      return all;
    };
    std::map<std::string, std::vector<float>> numbers, ignored;
    const std::vector<double> packed = losses(format, {}, numbers);
    const std::vector<double> plain = losses(WeightFormat::plain, numbers, ignored);
    EXPECT_LT(packed.back(), packed.front()) << name_of(format) << " " << lora;
    for (std::size_t i = 0; i < packed.size(); ++i)
      EXPECT_NEAR(packed[i], plain[i], 1e-4) << name_of(format) << " " << lora << i;
  }
}

TEST(PackedWeights, AreNotTrainedThemselves) {
  const model::ModelConfig config = wide_model(model::Arch::gpt2);
  EXPECT_THROW(
      compile::training_step(model::forward(config, 2, 8), step_of(EngineKind::fused, WeightFormat::nf4)),
      core::UsageError);
  model::ModelConfig narrow = testing::tiny_model();
  EXPECT_THROW(
      compile::inference_step(model::forward(narrow, 2, 8), step_of(EngineKind::fused, WeightFormat::int4)),
      core::UsageError);
}

/// Files hold the codes: what is read is bit for bit what was written, as numbers and as codes.
TEST(QuantizedFiles, KeepCodes) {
  const auto backend = testing::backend_for(EngineKind::fused);
  for (const WeightFormat format :
       {WeightFormat::int8, WeightFormat::int4, WeightFormat::nf4, WeightFormat::fp8}) {
    for (const model::Arch arch : {model::Arch::gpt2, model::Arch::llama}) {
      const testing::ScratchDirectory directory;
      const model::ModelConfig config = wide_model(arch);
      Session source(*backend, config, step_of(EngineKind::fused, WeightFormat::plain));
      source.initialise(5);
      model::save_quantized(
          directory / "q", config, format,
          [&](const std::string& name, std::span<float> values) { source.read_whole(name, values); }, {});
      EXPECT_EQ(model::read_weight_format(directory / "q"), format);
      const model::ModelConfig read = model::read_config(directory / "q");
      Session packed(*backend, read, step_of(EngineKind::fused, format));
      Session plain(*backend, read, step_of(EngineKind::fused, WeightFormat::plain));
      packed.load(directory / "q");
      plain.load(directory / "q");
      for (const model::Parameter& p : model::parameters(config)) {
        EXPECT_EQ(packed.weight(p.name), plain.weight(p.name)) << p.name;
        const std::vector<float> numbers = plain.weight(p.name), before = source.weight(p.name);
        double error = 0, size = 0;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          error += std::pow(numbers[i] - before[i], 2);
          size += before[i] * before[i];
        }
        EXPECT_LE(error, 0.02 * size) << p.name << " " << name_of(format);
      }
    }
  }
}

TEST(QuantizedFiles, OtherFormsAreRefusedByName) {
  const auto refused = [](const std::string& text) {
    try {
      model::parse_weight_format(text, "config.json");
    } catch (const core::InputError& error) {
      return std::string(error.what());
    } catch (const core::Unavailable& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(model::parse_weight_format("{}", "config.json"), WeightFormat::plain);
  EXPECT_NE(refused(R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})").find("'gptq'"),
            std::string::npos);
  EXPECT_NE(refused(R"({"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": true}})"),
            "");
  EXPECT_NE(refused(R"({"quantization_config": 3})"), "");
  EXPECT_NE(refused(R"({"quantization_config": {"quant_method": 3}})"), "");
  const std::string nested = R"({"text_config": {"quantization_config": {"quant_method": "mxfp4"}}})";
  EXPECT_NE(refused(nested).find("'mxfp4'"), std::string::npos);
  EXPECT_EQ(model::parse_weight_format(nested, "config.json", model::Unread::is_plain), WeightFormat::plain)
      << "a shape needs no weights";
}

/// Inputs that are correlated: what columns make up for is then much.
TEST(Gptq, ErrsLessThanRoundingInTheResult) {
  constexpr std::int64_t kRows = 24, kWidth = 256, kInputs = 512;
  std::vector<float> weight(kRows * kWidth), x(kInputs * kWidth), gram(kWidth * kWidth, 0.0F);
  for (std::size_t i = 0; i < weight.size(); ++i)
    weight[i] = static_cast<float>(core::philox(1, 1, i)[0]) * 0x1p-31F - 1;
  for (std::int64_t i = 0; i < kInputs; ++i) {
    for (std::int64_t k = 0; k < kWidth; ++k) {
      const auto noise =
          static_cast<float>(core::philox(2, 1, static_cast<std::size_t>(i * kWidth + k))[0]) * 0x1p-31F - 1;
      x[static_cast<std::size_t>(i * kWidth + k)] =
          noise + (k > 0 ? 0.9F * x[static_cast<std::size_t>(i * kWidth + k - 1)] : 0);
    }
  }
  for (std::int64_t a = 0; a < kWidth; ++a)
    for (std::int64_t b = 0; b < kWidth; ++b)
      for (std::int64_t i = 0; i < kInputs; ++i)
        gram[static_cast<std::size_t>(a * kWidth + b)] +=
            x[static_cast<std::size_t>(i * kWidth + a)] * x[static_cast<std::size_t>(i * kWidth + b)];
  const auto error_of = [&](const std::vector<float>& numbers) {
    double sum = 0;
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t i = 0; i < kInputs; ++i) {
        double y = 0;
        for (std::int64_t k = 0; k < kWidth; ++k)
          y += static_cast<double>(numbers[static_cast<std::size_t>(r * kWidth + k)] -
                                   weight[static_cast<std::size_t>(r * kWidth + k)]) *
               static_cast<double>(x[static_cast<std::size_t>(i * kWidth + k)]);
        sum += y * y;
      }
    }
    return sum;
  };
  for (const core::DType dtype : {core::DType::int4, core::DType::int8}) {
    std::vector<std::byte> codes(static_cast<std::size_t>(core::packed_bytes(dtype, kRows * kWidth, kWidth)));
    core::pack(dtype, kRows, kWidth, weight, codes.data());
    std::vector<float> nearest(weight.size()), rounded = weight, stored(weight.size());
    core::PackedMatrix{dtype, kRows, kWidth, codes.data()}.unpack(0, 0, kRows * kWidth, nearest.data());
    const std::vector<std::byte> own = round_by_gptq(dtype, kRows, kWidth, rounded, gram);
    core::PackedMatrix{dtype, kRows, kWidth, own.data()}.unpack(0, 0, kRows * kWidth, stored.data());
    EXPECT_EQ(stored, rounded);
    EXPECT_LT(error_of(rounded), 0.7 * error_of(nearest)) << core::name_of(dtype);
  }
}

}  // namespace
}  // namespace rooflm::train
