// The operations of a block as a formula in the letters of docs/design.md.
#include "report/model/work_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace rooflm::report {
namespace {

/// A product of letters and what it is in this run; 0 where it is not known.
struct Monomial {
  std::string letters;
  std::int64_t value = 0;
};

std::int64_t product_of(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor <= 0 || __builtin_mul_overflow(product, factor, &product)) return 0;
  }
  return product;
}

/// The sizes of a run, and the products that its blocks go by.
class Sizes {
 public:
  explicit Sizes(const RunData& run)
      : b_(product_of({size(run, "batch"), std::max<std::int64_t>(1, size(run, "grad_accum"))})),
        has_micro_batches_(size(run, "grad_accum") > 1),
        is_llama_(run.setting("arch") == "llama"),
        t_(size(run, "seq")),
        c_(size(run, "d_model")),
        h_(size(run, "heads")),
        k_(size(run, "kv_heads")),
        d_(run.run.config.integer("head_dim") ? size(run, "head_dim")
           : h_ > 0 && c_ % h_ == 0           ? c_ / h_
                                              : 0),
        f_(size(run, "d_ff")),
        v_(size(run, "vocab")),
        n_(size(run, "params")),
        padding_(size(run, "padding")) {}

  /// Of matmuls, by the last step of a part's path.
  [[nodiscard]] std::vector<Monomial> products(std::string_view name) const {
    if (name == "qkv") return {{rows("C " + qkv_letters()), product_of({b_, t_, c_, h_ + 2 * k_, d_})}};
    if (name == "qk" || name == "v" || name == "flash")
      return {{pairs("D"), product_of({b_, h_, t_, t_, d_})}};
    if (name == "proj") return {{rows(heads_letters() + " C"), product_of({b_, t_, h_, d_, c_})}};
    if (name == "fc1")
      return {{rows(is_llama_ ? "C 2F" : "C F"), product_of({b_, t_, c_, is_llama_ ? 2 * f_ : f_})}};
    if (name == "fc2") return {{rows("F C"), product_of({b_, t_, f_, c_})}};
    if (name == "lm_head") return {{rows("C V"), product_of({b_, t_, c_, v_})}};
    return {};
  }

  /// Of everything else, largest first.
  [[nodiscard]] std::vector<Monomial> elements(std::string_view name) const {
    if (name == "optimizer") return {{padding_ > 0 ? "(N + padding)" : "N", n_ + padding_}, {"1", 1}};
    if (name == "loss") return {{rows("V"), product_of({b_, t_, v_})}, {rows(""), product_of({b_, t_})}};
    if (name == "qk" || name == "v" || name == "flash" || name == "softmax") {
      return {{pairs(""), product_of({b_, h_, t_, t_})}};
    }
    if (name == "fc1" || name == "act") return {{rows("F"), product_of({b_, t_, f_})}};
    if (name == "qkv" && k_ != h_) return {{rows("(H + K) D"), product_of({b_, t_, h_ + k_, d_})}};
    return {{rows("C"), product_of({b_, t_, c_})}};
  }

  /// Of activations that a part writes.
  [[nodiscard]] std::vector<Monomial> activations(std::string_view name) const {
    const Monomial scores{pairs(""), product_of({b_, h_, t_, t_})};
    const Monomial heads{rows(heads_letters()), product_of({b_, t_, h_, d_})};
    const Monomial lse{rows("H"), product_of({b_, t_, h_})};
    const Monomial width{rows("C"), product_of({b_, t_, c_})};
    const Monomial row{rows(""), product_of({b_, t_})};
    if (name == "qkv") return {{rows(qkv_letters()), product_of({b_, t_, h_ + 2 * k_, d_})}, heads, width};
    if (name == "qk" || name == "softmax") return {scores};
    if (name == "v") return {heads};
    if (name == "flash") return {heads, lse};
    if (name == "fc1") return {{rows(is_llama_ ? "2F" : "F"), product_of({b_, t_, is_llama_ ? 2 * f_ : f_})}};
    if (name == "act") return {{rows("F"), product_of({b_, t_, f_})}};
    if (name == "lm_head" || name == "loss") return {{rows("V"), product_of({b_, t_, v_})}, row};
    return {width, row};
  }

 private:
  [[nodiscard]] bool is_plain() const { return product_of({h_, d_}) == c_; }
  /// What all heads are wide together, and with their keys and values.
  [[nodiscard]] std::string heads_letters() const { return is_plain() ? "C" : "H D"; }
  [[nodiscard]] std::string qkv_letters() const {
    return k_ != h_ ? "(H + 2K) D" : is_plain() ? "3C" : "3 H D";
  }
  static std::int64_t size(const RunData& run, const char* key) {
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    const std::int64_t value = run.run.config.integer(key).value_or(0);
    return value > kMost ? 0 : value;
  }
  /// The letters of tokens with these behind them.
  [[nodiscard]] std::string rows(const std::string& more) const {
    return (has_micro_batches_ ? "G B T" : "B T") + (more.empty() ? "" : " " + more);
  }
  /// The letters of pairs of tokens.
  [[nodiscard]] std::string pairs(const std::string& more) const {
    return (has_micro_batches_ ? "G B H T T" : "B H T T") + (more.empty() ? "" : " " + more);
  }

  std::int64_t b_;
  bool has_micro_batches_, is_llama_;
  std::int64_t t_, c_, h_, k_, d_, f_, v_, n_, padding_;
};

/// `count` as a sum of small multiples of the monomials; nothing where it is none.
std::optional<std::vector<std::string>> terms_of(std::int64_t count, const std::vector<Monomial>& monomials,
                                                 std::int64_t layers) {
  constexpr std::int64_t kMostTimes = 99;
  std::vector<std::string> terms;
  for (const auto& [letters, one] : monomials) {
    const std::int64_t value = product_of({one, layers});
    const std::int64_t times = value > 0 ? count / value : 0;
    if (times <= 0) continue;
    if (times > kMostTimes) return std::nullopt;
    const std::string layer_text = layers > 1 ? fmt::format("{} x ", layers) : "";
    const std::string times_text = letters == "1" || times > 1 ? std::to_string(times) : "";
    const std::string letter_text = letters == "1" ? "" : letters;
    terms.push_back(fmt::format("{}{}{}{}", layer_text, times_text,
                                times_text.empty() || letter_text.empty() ? "" : " ", letter_text));
    count -= times * value;
  }
  if (count != 0) return std::nullopt;
  return terms;
}

/// The same in each layer, or, where the first or last differs, all of them together.
std::optional<std::vector<std::string>> terms_of_layers(std::int64_t count,
                                                        const std::vector<Monomial>& monomials,
                                                        std::int64_t layers) {
  const auto terms = terms_of(count, monomials, layers);
  return terms ? terms : terms_of(count, monomials, 1);
}

/// "qkv" of "attention/qkv".
std::string last_step(const Group& group) { return group.name.substr(group.name.rfind('/') + 1); }

std::int64_t layers_of(const RunData& run, bool is_layered) {
  return is_layered ? run.run.config.integer("layers").value_or(0) : 1;
}

}  // namespace

std::string element_formula(const RunData& run, const Group& group, std::int64_t elements, bool is_layered) {
  const Sizes sizes(run);
  const auto terms =
      terms_of_layers(elements, sizes.activations(last_step(group)), layers_of(run, is_layered));
  return terms ? fmt::format("{}", fmt::join(*terms, " + ")) : "";
}

std::string flop_formula(const RunData& run, const Group& group, bool is_layered) {
  const Sizes sizes(run);
  const std::string name = last_step(group);
  const std::int64_t layers = layers_of(run, is_layered);
  const auto products = terms_of_layers(group.work.matmul_flop, sizes.products(name), layers);
  const auto others = terms_of_layers(group.work.elementwise_flop, sizes.elements(name), layers);
  if (!products || !others) return "";
  std::vector<std::string> terms = *products;
  terms.insert(terms.end(), others->begin(), others->end());
  return terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
}

}  // namespace rooflm::report
