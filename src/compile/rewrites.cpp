// Names of rewrites.
#include "compile/rewrites.h"

#include "core/named.h"

namespace rooflm::compile {
namespace {

constexpr auto kRewrites = core::named<Rewrite>("rewrite", {{Rewrite::compact_state, "compact_state"},
                                                            {Rewrite::gelu_in_epilogue, "gelu_in_epilogue"},
                                                            {Rewrite::bias_in_gradients, "bias_in_gradients"},
                                                            {Rewrite::early_norm, "early_norm"},
                                                            {Rewrite::rebuild, "rebuild"},
                                                            {Rewrite::sum_in_update, "sum_in_update"},
                                                            {Rewrite::unfused_loss, "unfused_loss"},
                                                            {Rewrite::row_copies, "row_copies"},
                                                            {Rewrite::dropout, "dropout"},
                                                            {Rewrite::fp8_own_scales, "fp8_own_scales"},
                                                            {Rewrite::fp8_casts_apart, "fp8_casts_apart"},
                                                            {Rewrite::fp8_gathers, "fp8_gathers"},
                                                            {Rewrite::fp8_parameters, "fp8_parameters"},
                                                            {Rewrite::async_tensor, "async_tensor"},
                                                            {Rewrite::gradient_sums, "gradient_sums"},
                                                            {Rewrite::separate_matmuls, "separate_matmuls"},
                                                            {Rewrite::gather_again, "gather_again"},
                                                            {Rewrite::reduce_early, "reduce_early"},
                                                            {Rewrite::half_gradients, "half_gradients"},
                                                            {Rewrite::gathered_ring, "gathered_ring"},
                                                            {Rewrite::whole_recompute, "whole_recompute"},
                                                            {Rewrite::fp8_experts, "fp8_experts"},
                                                            {Rewrite::half_states, "half_states"}});

}  // namespace

std::string_view name_of(Rewrite rewrite) { return kRewrites.name(rewrite); }

Rewrites parse_rewrites(std::span<const std::string> names) {
  Rewrites all;
  for (const std::string& name : names) all.set(kRewrites.parse(name));
  return all;
}

}  // namespace rooflm::compile
