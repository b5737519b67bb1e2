// Options as members: a struct's visit_options names each of its options once, and everything else loops over
// it.
#pragma once

#include <concepts>
#include <type_traits>

namespace rooflm::core {

/// `T` is `Options`, const or not. A struct with options defines, in its namespace,
///     template <core::MaybeConst<Fp8Options> T, class Visit>
///     void visit_options(T& options, const Visit& visit) {
///       visit("fp8_weights", options.weights);
///     }
/// The keys are those of record/config.h. A member is a number, a flag, a text, a value with names
/// (core/named.h), or std::optional of one.
template <class T, class Options>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Options>;

}  // namespace rooflm::core
