// A layer of experts on a GPU, bf16, kernel by kernel and as a whole, forward and backward:
// cuda_experts_bench [ROUNDS] [ROW...], as in `20 1 3`; rows count from 1.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/experts/experts.h"
#include "backends/cuda/kernels/experts/grouped_gemm.h"
#include "backends/cuda/kernels_file.h"
#include "core/dtype.h"
#include "core/f16.h"
#include "devices/cuda_workspaces.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

constexpr int kWarmUps = 3;

/// N tokens of width C, E experts of width F, of which a token takes K. `skew`: a standard deviation that is
/// added to each expert's logits; 0 gives nearly equal loads.
struct Layer {
  std::int64_t tokens, width, d_ff, experts, active;
  double skew;
};
constexpr std::array kLayers = {
    Layer{32768, 2048, 768, 128, 8, 0},
    Layer{32768, 2048, 768, 128, 8, 0.5},
    Layer{24576, 1536, 256, 128, 8, 0},
    Layer{8192, 4096, 14336, 8, 2, 0},
};

void check(cudaError_t error, const char* doing) {
  if (error != cudaSuccess) throw std::runtime_error(fmt::format("{}: {}", doing, cudaGetErrorString(error)));
}

class Memory {
 public:
  explicit Memory(std::int64_t bytes) {
    check(cudaMalloc(&data_, static_cast<std::size_t>(bytes)), "allocating");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] float* floats() const { return static_cast<float*>(data_); }
  [[nodiscard]] std::int32_t* ids() const { return static_cast<std::int32_t*>(data_); }

 private:
  void* data_ = nullptr;
};

/// Normal numbers in bf16.
class Halves : public Memory {
 public:
  explicit Halves(std::int64_t count, float size = 1) : Memory(2 * count) {
    constexpr std::int64_t kStretch = 1'234'567;
    std::mt19937 engine(static_cast<unsigned>(count));
    std::normal_distribution<float> normal(0, size);
    std::vector<std::uint16_t> values(static_cast<std::size_t>(std::min(count, kStretch)));
    for (std::uint16_t& value : values) value = core::Bf16(normal(engine)).bits;
    for (std::int64_t done = 0; done < count; done += kStretch) {
      check(
          cudaMemcpy(static_cast<std::uint16_t*>(data()) + done, values.data(),
                     static_cast<std::size_t>(2 * std::min(count - done, kStretch)), cudaMemcpyHostToDevice),
          "copying operands");
    }
  }
};

struct Part {
  std::string name;
  double flop = 0;  ///< of its matmul
  bool is_forward = true;
  bool is_of_layer = true;
  std::function<void()> submit;
  std::vector<double> us{};

  [[nodiscard]] double median_us() {
    std::ranges::sort(us);
    return us[us.size() / 2];
  }
};

class Row {
 public:
  explicit Row(const Layer& l)
      : layer_(l),
        shape_{.tokens = l.tokens, .experts = l.experts, .active = l.active},
        logits_(l.tokens * l.experts),
        x_(l.tokens * l.width),
        dy_(l.tokens * l.width),
        w1_(l.experts * 2 * l.d_ff * l.width, 0.02F),
        w2_(l.experts * l.d_ff * l.width, 0.02F),
        rows_(rows() * l.width),
        h_(rows() * 2 * l.d_ff),
        act_(rows() * l.d_ff),
        out_(rows() * l.width),
        d_act_(rows() * l.d_ff),
        dw1_(4 * l.experts * 2 * l.d_ff * l.width),
        dw2_(4 * l.experts * l.d_ff * l.width),
        weights_(4 * rows()),
        d_weights_(4 * rows()),
        chosen_(4 * rows()),
        order_(4 * rows()),
        places_(4 * rows()),
        offsets_(4 * (l.experts + 1)),
        counts_(devices::dispatch_bytes(rows(), l.experts)) {
    skew_logits();
    add_forward();
    add_backward();
  }

  void run(int rounds) {
    std::vector<cudaEvent_t> events(parts_.size() + 1);
    for (cudaEvent_t& event : events) check(cudaEventCreate(&event), "creating an event");
    for (int round = -kWarmUps; round < rounds; ++round) {
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        check(cudaEventRecord(events[i], nullptr), "recording an event");
        parts_[i].submit();
      }
      check(cudaEventRecord(events.back(), nullptr), "recording an event");
      check(cudaDeviceSynchronize(), "running");
      for (std::size_t i = 0; round >= 0 && i < parts_.size(); ++i) {
        float ms = 0;
        check(cudaEventElapsedTime(&ms, events[i], events[i + 1]), "reading an event");
        parts_[i].us.push_back(1e3 * static_cast<double>(ms));
      }
    }
    for (cudaEvent_t event : events) cudaEventDestroy(event);
  }

  void print(std::size_t number) {
    std::vector<std::int32_t> offsets(static_cast<std::size_t>(layer_.experts + 1));
    check(cudaMemcpy(offsets.data(), offsets_.data(), 4 * offsets.size(), cudaMemcpyDeviceToHost),
          "copying out");
    std::int32_t most = 0;
    for (std::size_t e = 0; e + 1 < offsets.size(); ++e) most = std::max(most, offsets[e + 1] - offsets[e]);
    fmt::print("{}  N={} C={} F={} E={} K={}: the busiest expert has {:.2f} of the mean\n", number,
               layer_.tokens, layer_.width, layer_.d_ff, layer_.experts, layer_.active,
               static_cast<double>(most) * static_cast<double>(layer_.experts) / static_cast<double>(rows()));
    for (const bool is_forward : {true, false}) {
      double flop = 0, us = 0, matmul_us = 0;
      for (Part& part : parts_) {
        if (part.is_forward != is_forward) continue;
        const double own = part.median_us();
        fmt::print("    {:<26} {:9.1f} us{}\n", part.name, own,
                   part.flop > 0 ? fmt::format(" {:6.1f} TFLOP/s", part.flop / own * 1e-6) : "");
        if (!part.is_of_layer) continue;
        us += own;
        flop += part.flop;
        if (part.flop > 0) matmul_us += own;
      }
      fmt::print("  {:<28} {:9.1f} us {:6.1f} TFLOP/s, matmuls alone {:6.1f}\n",
                 is_forward ? "forward" : "backward", us, flop / us * 1e-6, flop / matmul_us * 1e-6);
    }
    std::fflush(stdout);
  }

 private:
  [[nodiscard]] std::int64_t rows() const { return layer_.tokens * layer_.active; }

  void skew_logits() const {
    if (layer_.skew == 0) return;
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    std::vector<float> of_expert(static_cast<std::size_t>(layer_.experts));
    for (float& value : of_expert) value = static_cast<float>(layer_.skew) * normal(engine);
    std::vector<std::uint16_t> values(static_cast<std::size_t>(layer_.tokens * layer_.experts));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = core::Bf16(normal(engine) + of_expert[i % of_expert.size()]).bits;
    check(cudaMemcpy(logits_.data(), values.data(), 2 * values.size(), cudaMemcpyHostToDevice), "copying in");
  }

  void add(std::string name, std::function<void()> submit, double flop = 0) {
    parts_.push_back(
        {.name = std::move(name), .flop = flop, .is_forward = is_forward_, .submit = std::move(submit)});
  }
  /// Rows [R, k] times the weights of each expert.
  void add_matmul(std::string name, const Memory& a, const Memory& b, const Memory& c, std::int64_t n,
                  std::int64_t k, bool trans_b) {
    const GroupedMatmul g{.factors = DType::bf16,
                          .result = DType::bf16,
                          .experts = layer_.experts,
                          .rows = rows(),
                          .n = n,
                          .k = k,
                          .trans_b = trans_b,
                          .a = a.data(),
                          .b = b.data(),
                          .offsets = offsets_.ids(),
                          .c = c.data()};
    add(
        std::move(name), [g] { launch_grouped_matmul(nullptr, g); }, flop_of(n, k));
  }
  void add_weight(std::string name, const Memory& a, const Memory& b, const Memory& c, std::int64_t m,
                  std::int64_t n, DType result) {
    const GroupedMatmulWeight g{.factors = DType::bf16,
                                .result = result,
                                .experts = layer_.experts,
                                .rows = rows(),
                                .m = m,
                                .n = n,
                                .a = a.data(),
                                .b = b.data(),
                                .offsets = offsets_.ids(),
                                .c = c.data()};
    add(
        std::move(name), [g] { launch_grouped_matmul_weight(nullptr, g); }, flop_of(m, n));
  }
  [[nodiscard]] double flop_of(std::int64_t n, std::int64_t k) const {
    return 2.0 * static_cast<double>(rows()) * static_cast<double>(n) * static_cast<double>(k);
  }

  void add_forward() {
    const auto [tokens, width, d_ff, experts, active, skew] = layer_;
    add("route", [this] {
      launch_route(nullptr, DType::bf16, shape_, {.is_normalised = true}, logits_.data(), nullptr,
                   weights_.floats(), chosen_.ids());
    });
    add("dispatch", [this] {
      launch_dispatch(nullptr, shape_, chosen_.ids(), order_.ids(), places_.ids(), offsets_.ids(),
                      counts_.ids());
    });
    add("gather_rows", [this] {
      launch_gather_rows(nullptr, shape_, layer_.width, 2, x_.data(), places_.ids(), rows_.data());
    });
    add_matmul("fc1", rows_, w1_, h_, 2 * d_ff, width, true);
    add("swiglu",
        [this] { launch_swiglu(nullptr, DType::bf16, rows(), layer_.d_ff, h_.data(), act_.data()); });
    add_matmul("fc2", act_, w2_, out_, width, d_ff, true);
    add("combine", [this] {
      launch_combine(nullptr, DType::bf16, shape_, layer_.width, out_.data(), weights_.floats(),
                     places_.ids(), dy_.data());
    });
  }

  /// Rows' gradients take the place of what the forward pass has left there.
  void add_backward() {
    const auto [tokens, width, d_ff, experts, active, skew] = layer_;
    is_forward_ = false;
    add("combine_backward", [this] {
      launch_combine_backward(nullptr, DType::bf16, shape_, layer_.width,
                              {.dy = dy_.data(),
                               .rows = out_.data(),
                               .weights = weights_.floats(),
                               .places = places_.ids(),
                               .drows = out_.data(),
                               .dweights = d_weights_.floats()});
    });
    add_matmul("fc2, rows", out_, w2_, d_act_, d_ff, width, false);
    add_weight("fc2, weights", out_, act_, dw2_, width, d_ff, DType::f32);
    add("swiglu_backward", [this] {
      launch_swiglu_backward(nullptr, DType::bf16, rows(), layer_.d_ff, d_act_.data(), h_.data(), h_.data(),
                             nullptr);
    });
    add_matmul("fc1, rows", h_, w1_, out_, width, 2 * d_ff, false);
    add_weight("fc1, weights", h_, rows_, dw1_, 2 * d_ff, width, DType::f32);
    add("gather_rows_backward", [this] {
      launch_combine(nullptr, DType::bf16, shape_, layer_.width, out_.data(), nullptr, places_.ids(),
                     dy_.data());
    });
    add_weight("(fc1, weights in bf16)", h_, rows_, dw1_, 2 * d_ff, width, DType::bf16);
    parts_.back().is_of_layer = false;
  }

  Layer layer_;
  ExpertShape shape_;
  Halves logits_, x_, dy_, w1_, w2_, rows_, h_, act_, out_, d_act_;
  Memory dw1_, dw2_, weights_, d_weights_, chosen_, order_, places_, offsets_, counts_;
  std::vector<Part> parts_;
  bool is_forward_ = true;
};

int run(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
  std::vector<std::size_t> numbers;
  for (int i = 2; i < argc; ++i) numbers.push_back(std::strtoul(argv[i], nullptr, 10));
  if (numbers.empty())
    for (std::size_t i = 1; i <= kLayers.size(); ++i) numbers.push_back(i);
  select_device(0);
  for (const std::size_t number : numbers) {
    Row row(kLayers.at(number - 1));
    row.run(std::max(rounds, 1));
    row.print(number);
  }
  return 0;
}

}  // namespace
}  // namespace rooflm::backends::cuda

int main(int argc, char** argv) {
  try {
    return rooflm::backends::cuda::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_experts_bench: {}\n", error.what());
    return 1;
  }
}
