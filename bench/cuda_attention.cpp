// The gradient of causal attention, bf16, in any order of sums: rooflm's two passes, cuDNN, and rooflm's one
// pass with its parts, in turn: cuda_attention_bench [ROUNDS] [ROW...], as in `20 1 6`; rows count from 1.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/cuda/cudnn_attention.h"
#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels_file.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

// Batch, sequence, query heads, key heads, head size, rules of scores.
constexpr std::array kShapes = {
    AttentionShape{32, 1024, 12, 12, 64},  // gpt2
    AttentionShape{4, 1024, 12, 12, 64},
    AttentionShape{8, 1024, 12, 12, 64},
    AttentionShape{4, 1024, 25, 25, 64},  // xl
    AttentionShape{4, 1024, 32, 32, 80},  // 2.7B
    AttentionShape{4, 4096, 16, 16, 64},
    AttentionShape{1, 16384, 16, 16, 64},
    AttentionShape{8, 1024, 16, 16, 128},
    AttentionShape{4, 4096, 16, 16, 128},
    AttentionShape{1, 16384, 16, 16, 128},
    AttentionShape{2, 4096, 32, 8, 128},
    AttentionShape{8, 2048, 16, 16, 128},
    AttentionShape{16, 512, 12, 12, 64},
    AttentionShape{64, 256, 12, 12, 64},
    AttentionShape{1, 8192, 32, 8, 128},
    AttentionShape{1, 8192, 32, 8, 128, {.window = 1024}},
    AttentionShape{1, 8192, 32, 32, 64},
    AttentionShape{1, 8192, 32, 32, 64, {.window = 1024}},
};

constexpr int kWarmUps = 3;
constexpr int kFewestSets = 2;
constexpr std::size_t kColdBytes = std::size_t{200} << 20U;  ///< of all sets of operands: four times the L2

void check(cudaError_t error, const char* doing) {
  if (error != cudaSuccess) throw std::runtime_error(fmt::format("{}: {}", doing, cudaGetErrorString(error)));
}

class Memory {
 public:
  explicit Memory(std::size_t bytes) {
    check(cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)), "allocating");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] float* floats() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "creating an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "recording an event"); }
  [[nodiscard]] double us_since(const Event& start) const {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start.event_, event_), "reading an event");
    return 1e3 * static_cast<double>(ms);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Keeps a stream from starting while work is submitted to it, so that no gap between submissions is timed.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void close(cudaStream_t stream) {
    is_open_ = false;
    const auto wait = [](void* self) {
      const auto& is_open = static_cast<Gate*>(self)->is_open_;
      while (!is_open) {
      }
    };
    check(cudaLaunchHostFunc(stream, wait, this), "closing the gate");
  }
  void open() { is_open_ = true; }
  ~Gate() { open(); }  // or a stream would wait for ever

 private:
  std::atomic<bool> is_open_ = true;
};

std::size_t elements_of_y(const AttentionShape& s) {
  return static_cast<std::size_t>(s.batch * s.seq * s.heads * s.head_dim);
}
std::size_t elements_of_qkv(const AttentionShape& s) {
  return static_cast<std::size_t>(s.batch * s.seq * (s.heads + 2 * s.kv_heads) * s.head_dim);
}

/// Normal numbers as bf16, of which tensors take stretches.
class Numbers {
 public:
  Numbers() : values_(kCount) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    for (std::uint16_t& value : values_) value = core::Bf16(normal(engine)).bits;
  }
  void fill(const Memory& to, std::size_t elements, std::size_t seed) const {
    constexpr std::size_t kStride = 100'003;
    for (std::size_t done = 0; done < elements;) {
      const std::size_t from = done == 0 ? seed * kStride % kCount : 0;
      const std::size_t count = std::min(elements - done, kCount - from);
      check(cudaMemcpy(static_cast<std::uint16_t*>(to.data()) + done, values_.data() + from, 2 * count,
                       cudaMemcpyHostToDevice),
            "copying operands");
      done += count;
    }
  }

 private:
  static constexpr std::size_t kCount = 7'654'321;
  std::vector<std::uint16_t> values_;
};

struct Operands {
  Memory qkv, y, dy, dqkv, lse;

  Operands(const AttentionShape& s, const Numbers& numbers, std::size_t seed)
      : qkv(2 * elements_of_qkv(s)),
        y(2 * elements_of_y(s)),
        dy(2 * elements_of_y(s)),
        dqkv(2 * elements_of_qkv(s)),
        lse(sizeof(float) * static_cast<std::size_t>(s.batch * s.heads * s.seq)) {
    numbers.fill(qkv, elements_of_qkv(s), 2 * seed);
    numbers.fill(dy, elements_of_y(s), 2 * seed + 1);
    launch_flash_attention(nullptr, DType::bf16, s, qkv.data(), y.data(), lse.floats());
  }
  static std::size_t bytes(const AttentionShape& s) { return 4 * (elements_of_qkv(s) + elements_of_y(s)); }
};

/// One way to compute the gradient, with times between its submissions.
struct Way {
  std::string name{};
  std::vector<std::function<void(const Operands&)>> parts{};  ///< in order
  std::vector<std::vector<double>> part_us{};                 ///< by part, rounds
  bool is_whole = true;                                       ///< of one part

  [[nodiscard]] double median_us(std::size_t part) {
    std::vector<double>& us = part_us[part];
    std::ranges::sort(us);
    return us.empty() ? NAN : us[us.size() / 2];
  }
};

/// Of each position's gradients, [dq, dk, dv] of all heads: a sample of positions, in no step with any tile.
struct Sample {
  std::size_t width = 0, count = 0, step = 1;  ///< elements of a position; positions, and their distance

  explicit Sample(const AttentionShape& s)
      : width(static_cast<std::size_t>((s.heads + 2 * s.kv_heads) * s.head_dim)) {
    constexpr std::size_t kMostElements = 4'000'000;
    const auto positions = static_cast<std::size_t>(s.batch * s.seq);
    step = (positions * width / kMostElements) | 1U;
    count = positions / step;
  }
};

/// The gradient that a way computes, as numbers.
std::vector<float> gradient_of(const Way& way, const Operands& operands, const AttentionShape& s,
                               cudaStream_t stream) {
  check(cudaMemsetAsync(operands.dqkv.data(), 0xff, 2 * elements_of_qkv(s), stream), "filling");  // NaN
  for (const auto& part : way.parts) part(operands);
  check(cudaStreamSynchronize(stream), "computing a gradient");
  const Sample sample(s);
  const std::size_t bytes = 2 * sample.width;
  std::vector<std::uint16_t> raw(sample.count * sample.width);
  check(cudaMemcpy2D(raw.data(), bytes, operands.dqkv.data(), sample.step * bytes, bytes, sample.count,
                     cudaMemcpyDeviceToHost),
        "copying out");
  std::vector<float> values(raw.size());
  core::Bf16 value;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    value.bits = raw[i];
    values[i] = static_cast<float>(value);
  }
  return values;
}

/// Norm of the difference by the norm of what is expected, the largest of dq, dk and dv; infinite where a
/// number is none.
double difference(std::span<const float> actual, std::span<const float> expected, const AttentionShape& s) {
  const std::size_t row = Sample(s).width;
  const auto queries = static_cast<std::size_t>(s.heads * s.head_dim);
  const auto keys = static_cast<std::size_t>(s.kv_heads * s.head_dim);
  double largest = 0;
  std::size_t begin = 0;
  for (const std::size_t width : {queries, keys, keys}) {
    double squares = 0;
    double distances = 0;
    for (std::size_t at = begin; at < expected.size(); at += row) {
      float square = 0;
      float distance = 0;
      for (std::size_t i = at; i < at + width; ++i) {
        square += expected[i] * expected[i];
        distance += (actual[i] - expected[i]) * (actual[i] - expected[i]);
      }
      squares += static_cast<double>(square);
      distances += static_cast<double>(distance);
    }
    const double relative = std::sqrt(distances / squares);
    if (!std::isfinite(relative)) return INFINITY;
    largest = std::max(largest, relative);
    begin += width;
  }
  return largest;
}

class Row {
 public:
  Row(const AttentionShape& shape, const Numbers& numbers, CudnnAttention& cudnn, cudaStream_t stream)
      : shape_(shape),
        stream_(stream),
        gradient_(cudnn.gradient(shape, DType::bf16, {.deterministic = false})) {
    const std::size_t sets = std::max<std::size_t>(kFewestSets, kColdBytes / Operands::bytes(shape) + 1);
    for (std::size_t i = 0; i < sets; ++i) sets_.push_back(std::make_unique<Operands>(shape, numbers, i));
    const bool fits = fits_fused_backward(DType::bf16, shape);
    const std::size_t fused_bytes = fits ? fused_attention_backward_workspace_bytes(shape) : 0;
    workspace_ = std::make_unique<Memory>(
        std::max({gradient_.workspace_bytes, flash_attention_backward_workspace_bytes(shape), fused_bytes}));
    add_two_passes();
    if (gradient_.submit) add_cudnn();
    if (fits) add_one_pass();
    check(cudaDeviceSynchronize(), "preparing operands");
  }

  void run(int rounds) {
    const std::vector<float> expected = gradient_of(ways_[0], *sets_[0], shape_, stream_);
    for (std::size_t i = 1; i < ways_.size(); ++i) {
      differences_.push_back(
          ways_[i].is_whole ? difference(gradient_of(ways_[i], *sets_[0], shape_, stream_), expected, shape_)
                            : 0);
    }
    for (int i = -kWarmUps; i < rounds; ++i) round(i >= 0);
  }

  void print(std::size_t number) {
    const std::int64_t window = shape_.rules.window;
    const std::int64_t scores =
        window > 0 ? window * (2 * shape_.seq - window) : shape_.seq * shape_.seq;  // twice those seen
    const double flop = 2.5 * 2 * static_cast<double>(shape_.batch * shape_.heads * shape_.head_dim) *
                        static_cast<double>(scores);
    fmt::print("{:2}  B={} H={} K={} T={} D={} W={}\n", number, shape_.batch, shape_.heads, shape_.kv_heads,
               shape_.seq, shape_.head_dim, window > 0 ? window : shape_.seq);
    const double two_passes_us = ways_[0].median_us(0);
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      Way& way = ways_[i];
      if (!way.is_whole) {
        fmt::print("    {:<24}", way.name);
        for (std::size_t part = 0; part < way.parts.size(); ++part)
          fmt::print(" {:9.1f}", way.median_us(part));
        fmt::print("  us: rows and zeros, matmuls ({:.0f} TFLOP/s), rounding\n",
                   flop / way.median_us(1) * 1e-6);
        continue;
      }
      const double us = way.median_us(0);
      fmt::print("    {:<24} {:9.1f} us {:6.1f} TFLOP/s {:6.3f} of two passes", way.name, us,
                 flop / us * 1e-6, us / two_passes_us);
      fmt::print("{}\n", i == 0 ? std::string() : fmt::format(", differs by {:.4f}", differences_[i - 1]));
    }
    std::fflush(stdout);
  }

 private:
  void add_two_passes() {
    ways_.push_back({.name = "two passes", .parts = {[this](const Operands& o) {
                                             launch_flash_attention_backward(
                                                 stream_, DType::bf16, shape_, o.dy.data(), o.qkv.data(),
                                                 o.y.data(), o.lse.floats(), o.dqkv.data(),
                                                 workspace_->data());
                                           }}});
  }
  void add_cudnn() {
    ways_.push_back({.name = gradient_.engine, .parts = {[this](const Operands& o) {
                                                 gradient_.submit(o.dy.data(), o.qkv.data(), o.y.data(),
                                                                  o.lse.floats(), o.dqkv.data(),
                                                                  workspace_->data());
                                               }}});
  }
  void add_one_pass() {
    const auto with = [&](FusedBackward run) {
      return [this, run](const Operands& o) {
        launch_fused_attention_backward(stream_, shape_, o.dy.data(), o.qkv.data(), o.y.data(),
                                        o.lse.floats(), o.dqkv.data(), workspace_->data(), run);
      };
    };
    ways_.push_back({.name = "one pass", .parts = {with({})}});
    ways_.push_back(
        {.name = "  its parts",
         .parts = {with({.multiplies = false, .rounds = false}), with({.prepares = false, .rounds = false}),
                   with({.prepares = false, .multiplies = false})},
         .is_whole = false});
  }

  /// All ways in turn, each on operands that the caches do not hold.
  void round(bool counts) {
    std::vector<std::vector<std::unique_ptr<Event>>> events(ways_.size());
    gate_.close(stream_);
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      const Operands& operands = *sets_[next_set_++ % sets_.size()];
      const auto mark = [&] {
        events[i].push_back(std::make_unique<Event>());
        events[i].back()->record(stream_);
      };
      mark();
      for (const auto& part : ways_[i].parts) {
        part(operands);
        mark();
      }
    }
    gate_.open();
    check(cudaStreamSynchronize(stream_), "running kernels");
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      Way& way = ways_[i];
      way.part_us.resize(way.parts.size());
      for (std::size_t part = 0; counts && part < way.parts.size(); ++part) {
        way.part_us[part].push_back(events[i][part + 1]->us_since(*events[i][part]));
      }
    }
  }

  AttentionShape shape_;
  cudaStream_t stream_;
  const CudnnGradient& gradient_;
  std::vector<std::unique_ptr<Operands>> sets_;
  std::unique_ptr<Memory> workspace_;
  std::vector<Way> ways_;  ///< the first: two passes
  std::vector<double> differences_;
  std::size_t next_set_ = 0;
  Gate gate_;
};

void run(int rounds, std::span<char*> numbers_of_rows) {
  select_device(0);
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "asking for the device");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  CudnnAttention cudnn(0, stream);
  const Numbers numbers;
  fmt::print(
      "{}: gradient of causal attention, bf16, medians of {} rounds; 2.5 times the forward FLOPs, half "
      "the scores\n",
      device.name, rounds);
  for (std::size_t i = 0; i < kShapes.size(); ++i) {
    const auto is_this = [&](const char* text) { return std::strtoull(text, nullptr, 10) == i + 1; };
    if (!numbers_of_rows.empty() && std::ranges::none_of(numbers_of_rows, is_this)) continue;
    Row row(kShapes.at(i), numbers, cudnn, stream);
    row.run(rounds);
    row.print(i + 1);
  }
}

}  // namespace
}  // namespace rooflm::backends::cuda

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  constexpr int kRounds = 20;
  try {
    rooflm::backends::cuda::run(argc > 1 ? std::atoi(argv[1]) : kRounds,
                                arguments.subspan(std::min<std::size_t>(arguments.size(), 2)));
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_attention_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
