// From the names of devices and dtypes to what runs them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "compile/recipe.h"
#include "core/dtype.h"

namespace rooflm::cli {

/// "cpu", "cuda:N" ("cuda" is "cuda:0") or "null". Throws core::UsageError with a suggestion.
std::string parse_device(std::string_view name);

/// Whether `device` is a GPU, and the N of its "cuda:N".
bool is_cuda(const std::string& device);
int cuda_index(const std::string& device);

/// What `--dtype` stands for: TF32 is fp32 whose products may round their operands.
struct ComputeDtype {
  core::DType dtype = core::DType::f32;
  bool tf32 = false;
  bool operator==(const ComputeDtype&) const = default;
};

/// The compute dtype of a name of the command line: fp32, tf32, bf16, fp16, fp8. Throws core::UsageError with
/// a suggestion for other names, core::Unavailable for those that `device` does not compute: all have
/// fp32, bf16 and fp16 (the processor runs its reference kernels then), GPUs also tf32.
ComputeDtype parse_compute_dtype(std::string_view name, const std::string& device);

/// Sets what the fused engine does differently on this device. GPUs, whose memory is fast and small, hold so
/// many logits at a time that the weight gradient is rarely read and written again, where processors hold
/// what their caches like; and they keep the state of bf16 steps compact, and their products take GELU on the
/// way out.
void fit_to_device(compile::StepOptions& step, const std::string& device);

/// How a GPU chooses among algorithms of one product: always alike, so that runs repeat bit for bit, or the
/// one that is fastest when the engine is made.
enum class Tuning : std::uint8_t { repeatable, timed };

/// Whether a GPU sums in a fixed order, the same bits every time, or in any order where that is faster.
enum class SumOrder : std::uint8_t { fixed, any };

/// The backend on which an engine of this kind runs; `threads` 0 means one per core. Throws core::Unavailable
/// with the reason when there is no such device here.
std::unique_ptr<backends::Backend> make_backend(const std::string& device, compile::EngineKind engine,
                                                int threads, Tuning tuning = Tuning::repeatable,
                                                SumOrder order = SumOrder::fixed);

/// Threads that the processor backend uses for `threads`: one per core that this process may use for 0.
int resolve_threads(int threads);

}  // namespace rooflm::cli
