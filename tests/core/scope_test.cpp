// Reading the text of a scope.
#include "core/scope.h"

#include <gtest/gtest.h>

namespace rooflm::core {
namespace {

TEST(Scope, InsideALayer) {
  const Scope scope("h.12/attention/qk");
  EXPECT_EQ(scope.layer(), 12);
  EXPECT_EQ(scope.part(), "attention/qk");
  EXPECT_EQ(scope.block(), "attention");
  EXPECT_EQ(scope.any_layer(), "h.*/attention/qk");
  EXPECT_EQ(Scope("h.3/ln1").block(), "ln1");
}

TEST(Scope, OfALayerItself) {
  const Scope scope("h.7");
  EXPECT_EQ(scope.layer(), 7);
  EXPECT_EQ(scope.part(), "layer");
  EXPECT_EQ(scope.any_layer(), "h.*");
}

TEST(Scope, OutsideLayers) {
  for (const char* text : {"ln_f", "head", "h.", "h.x", ""}) {
    EXPECT_EQ(Scope(text).layer(), std::nullopt) << text;
    EXPECT_EQ(Scope(text).part(), text);
    EXPECT_EQ(Scope(text).any_layer(), text);
  }
  EXPECT_EQ(Scope("h.x/ln1").block(), "h.x");
}

}  // namespace
}  // namespace rooflm::core
