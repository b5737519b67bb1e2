// What generating text would take.
#include "perfmodel/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "compile/sharding.h"
#include "core/error.h"
#include "core/scope.h"
#include "model/forward.h"
#include "perfmodel/op_times.h"
#include "perfmodel/rank_memory.h"
#include "perfmodel/role.h"
#include "program/ops.h"

namespace rooflm::perfmodel {
namespace {

using core::DType;
using program::Op;
using program::Program;
using program::Role;
using program::TensorId;
namespace ops = program::ops;

bool is_product(const Op& op) {
  return ops::is_matmul(op) || op.is(ops::kMatmulGelu) || op.is(ops::kGroupedMatmul);
}

/// Whether weights of the format are what products compute with: the others are widened on their way.
bool has_products_of(const StoredWeights& weights, const Setting& setting) {
  return weights.format == core::WeightFormat::fp8 && setting.device.peak("fp8").has_value();
}

/// A pass over the model, by one rank.
class Pass {
 public:
  /// `batch`: texts of a rank. `tokens`: of each text, in this pass; 1 with `keys` tokens behind it is
  /// decoding.
  Pass(const InferencePoint& point, const Setting& setting, const InferenceEngine& engine, std::int64_t batch,
       std::int64_t tokens, std::int64_t keys)
      : point_(point), setting_(setting), engine_(engine), rows_(batch * tokens) {
    model::ModelConfig config = point.config;
    config.padded_vocab = planned_vocabulary(config, point.step.sharding);
    const model::CacheSize size{.batch = batch, .positions = keys};
    program_ = compile::inference_step(
        tokens == 1 ? model::decode(config, size, keys) : model::prefill(config, size, tokens), point.step);
    take_formats();
  }

  [[nodiscard]] PassTime time(const OpTimes& times) const {
    std::vector<OpTime> all(program_.ops.size());
    PowerMix mix;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Op& op = program_.ops[i];
      if (op.phase == program::Phase::setup) continue;
      all[i] = time_alone(program_, op, point_.step.sharding, setting_, times);
      if (moves_between_ranks(op)) continue;
      if (is_product(op)) all[i] = with_stream(all[i], op);
      add_to_mix(mix, op, all[i]);
    }
    const double clock = setting_.at_table_clock ? 1 : clock_share(times.power(), mix);
    PassTime sum;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (program_.ops[i].phase != program::Phase::setup) add(sum, program_.ops[i], all[i], clock);
    }
    const double device_s = sum.total();
    const double beside_s = engine_.launches_beside * engine_.launch_host_s;
    const double host_s =
        engine_.launches_per_layer * engine_.launch_host_s * static_cast<double>(point_.config.layers);
    sum.host_s = std::max(0.0, host_s - device_s) + beside_s;
    sum.spread_s += engine_.spread * sum.total();
    return sum;
  }

  [[nodiscard]] InferenceMemory memory(std::int64_t batch, std::int64_t keys) const {
    InferenceMemory memory{.context_bytes = setting_.framework.context_bytes};
    for (const program::Tensor& tensor : program_.tensors) {
      const auto bytes = static_cast<double>(tensor.bytes());
      const auto id = static_cast<TensorId>(&tensor - program_.tensors.data());
      if (tensor.role == Role::weight) memory.weight_bytes += bytes * stored_share(id);
    }
    double cache = 0;
    for (const TensorId id : cache_inputs()) cache += static_cast<double>(program_.tensor(id).bytes());
    memory.cache_byte_per_token = cache / static_cast<double>(batch * keys);
    const RankMemory rank = rank_memory(program_, compile::EngineKind::fused, false);
    memory.activation_bytes = rank.activation_bytes + rank.workspace_bytes + rank.gap_bytes;
    if (point_.step.sharding.tensor > 1) memory.buffer_bytes = setting_.cluster.buffer_bytes;
    return memory;
  }

 private:
  /// Caches as a pass finds them: ops write them in place.
  [[nodiscard]] std::vector<TensorId> cache_inputs() const {
    std::vector<bool> is_known(program_.tensors.size());
    std::vector<TensorId> found;
    for (const Op& op : program_.ops) {
      for (const TensorId id : op.inputs) {
        if (program_.tensor(id).role != Role::cache || is_known[static_cast<std::size_t>(id)]) continue;
        is_known[static_cast<std::size_t>(id)] = true;
        found.push_back(id);
      }
      for (const TensorId id : op.outputs) is_known[static_cast<std::size_t>(id)] = true;
    }
    return found;
  }

  /// Which weights are stored in the format: those of products of layers, and of the head where the engine
  /// does that. Products with them and caches get the dtypes that they are computed and kept in.
  void take_formats() {
    is_formatted_.resize(program_.tensors.size());
    const bool is_wide = point_.weights.format == core::WeightFormat::bf16;
    const bool retypes = has_products_of(point_.weights, setting_);
    for (const Op& op : program_.ops) {
      if (is_wide || !is_product(op)) continue;
      if (!core::Scope(op.scope).layer() && !engine_.has_quantised_head) continue;
      const bool has_weight = std::ranges::any_of(
          op.inputs, [&](TensorId id) { return program_.tensor(id).role == Role::weight; });
      for (std::size_t i = 0; has_weight && i < std::min<std::size_t>(2, op.inputs.size()); ++i) {
        program::Tensor& tensor = program_.tensor(op.inputs[i]);
        if (tensor.role == Role::weight) is_formatted_[static_cast<std::size_t>(op.inputs[i])] = true;
        if (retypes) tensor.dtype = DType::f8;
      }
    }
    for (program::Tensor& tensor : program_.tensors)
      if (tensor.role == Role::cache) tensor.dtype = point_.cache;
  }

  /// Of a tensor's bytes in the program.
  [[nodiscard]] double stored_share(TensorId id) const {
    if (!is_formatted_[static_cast<std::size_t>(id)]) return 1;
    constexpr double kBitsOfByte = 8;
    return point_.weights.bits /
           (kBitsOfByte * static_cast<double>(core::size_of(program_.tensor(id).dtype)));
  }

  /// Of the experts' weights, the share that some token of some rank takes, with experts drawn at random.
  [[nodiscard]] double touched_share(const Op& op) const {
    const model::Experts& experts = point_.config.experts;
    if (!op.is(ops::kGroupedMatmul) || experts.count == 0) return 1;
    const double taken = static_cast<double>(experts.active) / static_cast<double>(experts.count);
    return 1 - std::pow(1 - taken, static_cast<double>(rows_ * point_.step.sharding.data));
  }

  /// In the dtype of the program, and as they are stored, of those that are read.
  struct WeightBytes {
    double whole = 0, read = 0;
  };
  [[nodiscard]] WeightBytes weights_of(const Op& op) const {
    WeightBytes sum;
    for (const TensorId id : op.inputs) {
      const program::Tensor& tensor = program_.tensor(id);
      if (tensor.role != Role::weight) continue;
      sum.whole += static_cast<double>(tensor.bytes());
      sum.read += static_cast<double>(tensor.bytes()) * stored_share(id) * touched_share(op);
    }
    return sum;
  }

  /// A product with few rows is a stream of weights, by kernels made for it: no tile is filled up, and the
  /// format decides how near to the bandwidth they come. With many rows it is a GEMM.
  [[nodiscard]] OpTime with_stream(OpTime time, const Op& op) const {
    constexpr double kFewRows = 16;  // of a matrix instruction
    const program::Cost cost = program::cost_of(program_, op);
    const auto moved = static_cast<double>(cost.bytes_read + cost.bytes_written);
    if (moved <= 0 || time.moved_s <= 0) return time;
    const auto rows = static_cast<double>(rows_);
    const double share = engine_.byte_share.at(point_.weights.format);
    const WeightBytes weights = weights_of(op);
    const double body_s = time.seconds - time.launch_s;
    const bool is_gemm = rows > kFewRows && body_s > 1.001 * time.moved_s;
    const double math_s = is_gemm ? body_s : time.work_s * std::max(1.0, kFewRows / rows);
    const double moved_s = time.moved_s * (moved - weights.whole + weights.read / share) / moved;
    time.seconds = std::max(math_s, moved_s) + time.launch_s;
    time.work_s = math_s;
    time.moved_s = moved_s;
    return time;
  }

  void add(PassTime& sum, const Op& op, const OpTime& time, double clock) const {
    const double seconds = OpTimes::at_clock(time, clock);
    sum.spread_s += seconds * time.spread;
    sum.basis = weaker(sum.basis, time.basis);
    if (moves_between_ranks(op)) {
      sum.collective_s += seconds;
      return;
    }
    const double launch_s = std::min(time.launch_s, seconds);
    sum.launch_s += launch_s;
    const program::Cost cost = program::cost_of(program_, op);
    const bool is_cache = op.def->work == program::Work::attention && rows_of(op) == 1;
    const WeightBytes weights = is_product(op) ? weights_of(op) : WeightBytes{};
    const double bytes =
        static_cast<double>(cost.bytes_read + cost.bytes_written) - weights.whole + weights.read;
    sum.weight_bytes += weights.read;
    if (is_cache) sum.cache_bytes += bytes;
    const double rest_s = seconds - launch_s;
    if (time.work_s > time.moved_s) {
      sum.arithmetic_s += rest_s;
    } else if (is_cache) {
      sum.cache_s += rest_s;
    } else {
      const double share = bytes > 0 ? weights.read / bytes : 0;
      sum.weights_s += share * rest_s;
      sum.other_bytes_s += (1 - share) * rest_s;
    }
  }

  /// Tokens of each text that an op of attention computes.
  [[nodiscard]] std::int64_t rows_of(const Op& op) const {
    return program_.shape(op.inputs.front()).rank() > 1 ? program_.shape(op.inputs.front())[1] : 0;
  }

  const InferencePoint& point_;
  const Setting& setting_;
  const InferenceEngine& engine_;
  std::int64_t rows_ = 0;
  Program program_{};
  std::vector<bool> is_formatted_{};
};

/// Over tensor-parallel ranks, or, of experts, over ranks that share these.
InferencePoint split(const InferencePoint& point, int ranks) {
  InferencePoint result = point;
  compile::Sharding& sharding = result.step.sharding;
  if (point.config.experts.count > 0) {
    sharding.data = sharding.expert = ranks;
  } else {
    sharding.tensor = ranks;
  }
  return result;
}

/// Of the cache's share: what weights and activations leave.
double cache_bytes_of(const InferenceMemory& memory, const Setting& setting, const InferenceEngine& engine) {
  return engine.free_share * (setting.memory_limit_bytes - memory.without_cache());
}

/// Tokens of each text that its cache keeps room for.
double kept_tokens_of(const InferencePoint& point, const InferenceEngine& engine) {
  const auto prompt = static_cast<double>(point.seq);
  if (point.phase != InferencePhase::serve) return prompt;
  return prompt + static_cast<double>(point.output) * (engine.reserves_output ? 1.0 : 0.5);
}

/// Of a pass that fills a chunk of prompts, whatever the batch.
InferenceMemory memory_of(const InferencePoint& point, const Setting& setting,
                          const InferenceEngine& engine) {
  compile::check(point.step.sharding, point.config, std::max<std::int64_t>(1, point.batch), point.seq, 1,
                 compile::Purpose::plan);
  const std::int64_t tokens = std::max<std::int64_t>(2, std::min(point.seq, engine.most_tokens));
  const std::int64_t texts =
      std::max<std::int64_t>(1, std::min(engine.most_tokens / tokens, engine.most_texts));
  return Pass(point, setting, engine, texts, tokens, tokens).memory(texts, tokens);
}

/// The fewest ranks that hold the texts of so many tokens together; 0: the model cannot be split over as
/// many.
int fewest_ranks(const InferencePoint& point, const Setting& setting, const InferenceEngine& engine,
                 double tokens) {
  try {
    for (int ranks = 1;; ranks *= 2) {
      const InferenceMemory memory = memory_of(split(point, ranks), setting, engine);
      const double each = tokens / split(point, ranks).step.sharding.data;
      if (cache_bytes_of(memory, setting, engine) >= memory.cache_byte_per_token * each) return ranks;
    }
  } catch (const core::Error&) {
    return 0;
  }
}

}  // namespace

void PassTime::add(const PassTime& other, double times) {
  for (const auto member :
       {&PassTime::weights_s, &PassTime::cache_s, &PassTime::other_bytes_s, &PassTime::arithmetic_s,
        &PassTime::launch_s, &PassTime::collective_s, &PassTime::host_s, &PassTime::weight_bytes,
        &PassTime::cache_bytes, &PassTime::spread_s})
    this->*member += times * other.*member;
  basis = weaker(basis, other.basis);
}

std::string PassTime::bound() const {
  const std::initializer_list<std::pair<double, const char*>> parts = {{weights_s, "bytes of weights"},
                                                                       {cache_s, "bytes of the cache"},
                                                                       {other_bytes_s, "activations"},
                                                                       {arithmetic_s, "arithmetic"},
                                                                       {launch_s, "launches"},
                                                                       {collective_s, "collectives"},
                                                                       {host_s, "the host"}};
  return std::ranges::max_element(parts, {}, &std::pair<double, const char*>::first)->second;
}

InferencePlan plan_inference(const InferencePoint& point, const Setting& setting,
                             const InferenceEngine& engine) {
  constexpr std::int64_t kAnyLength = std::int64_t{1} << 50U;  // of models that any position suits
  const std::int64_t positions = point.config.max_seq > 0 ? point.config.max_seq : kAnyLength;
  if (point.output > positions - point.seq)
    throw core::UsageError(fmt::format(
        "--seq {} and --output-len {} are beyond the {} positions of {} (--positions N gives it more)",
        point.seq, point.output, positions, point.config.name));
  const OpTimes times = op_times_of(setting);
  const int sharing = point.step.sharding.data;
  if (point.batch % sharing != 0) {
    throw core::UsageError(fmt::format("--ep {} does not divide the {} texts", sharing, point.batch));
  }
  InferencePlan plan{.memory = memory_of(point, setting, engine),
                     .memory_limit_bytes = setting.memory_limit_bytes};
  plan.kept_tokens = kept_tokens_of(point, engine);
  const double room = cache_bytes_of(plan.memory, setting, engine) / plan.memory.cache_byte_per_token;
  const auto whole = [](double tokens) {
    constexpr double kMost = 1e15;
    return static_cast<std::int64_t>(std::clamp(tokens, 0.0, kMost));
  };
  const std::int64_t most = whole(room / plan.kept_tokens);
  const bool is_open = point.phase == InferencePhase::serve && point.batch == 0;
  const std::int64_t asked = is_open ? std::min(most, engine.most_texts) : point.batch / sharing;
  plan.fits = asked >= 1 && asked <= most;
  const std::int64_t texts = std::max<std::int64_t>(1, asked);  // of a rank
  plan.sharing = sharing;
  plan.batch = texts * sharing;
  plan.largest_batch = most * sharing;
  plan.largest_context = whole(room / static_cast<double>(texts));
  if (point.config.max_seq > 0) plan.largest_context = std::min(plan.largest_context, point.config.max_seq);
  plan.gpus_needed =
      plan.fits && point.step.sharding.ranks() == 1
          ? 1
          : fewest_ranks(point, setting, engine, plan.kept_tokens * static_cast<double>(plan.batch));
  const auto pass = [&](std::int64_t batch, std::int64_t tokens, std::int64_t keys) {
    return Pass(point, setting, engine, batch, tokens, keys).time(times);
  };
  const std::int64_t prompt = std::max<std::int64_t>(2, point.seq);  // one token is decoding
  const auto count = static_cast<double>(texts);
  if (point.phase == InferencePhase::prefill) {
    plan.pass = pass(texts, prompt, prompt);
    plan.first_s = plan.pass.total();
    plan.token_per_s = sharing * count * static_cast<double>(prompt) / plan.first_s;
    return plan;
  }
  plan.first_s = pass(1, prompt, prompt).total();
  if (point.phase == InferencePhase::decode) {
    plan.pass = pass(texts, 1, point.seq);
  } else {
    // A text is decoded `output` times for one prefill, of prompts that share a step.
    const std::int64_t together =
        std::clamp<std::int64_t>(engine.most_tokens / prompt, 1, std::max<std::int64_t>(1, texts));
    plan.pass = pass(texts, 1, point.seq + (point.output + 1) / 2);
    plan.first_s += plan.pass.total();
    plan.pass.add(pass(together, prompt, prompt),
                  count / static_cast<double>(together) / static_cast<double>(point.output));
  }
  plan.next_s = plan.pass.total();
  plan.token_per_s = sharing * count / plan.next_s;
  return plan;
}

}  // namespace rooflm::perfmodel
