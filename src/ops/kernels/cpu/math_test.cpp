// The real functions of the kernels against the C library's in float64. Their vectors owe these
// scalar twins their bits: the tests of the kernels that call them see to that.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/kernels/cpu/math_reference.h"

namespace tenon::cpu {
namespace {

// In units of the last place of the exact value.
double error_ulp(float got, double exact) {
  const auto near = static_cast<float>(exact);
  return std::abs(got - exact) / (std::nextafter(std::abs(near), HUGE_VALF) - std::abs(near));
}

TEST(Math, ExpAndTanhAreNear) {
  double worst_exp = 0, worst_tanh = 0;
  for (int i = -87 * 4096; i < 88 * 4096; ++i) {
    const float x = static_cast<float>(i) / 4096 + 0x1p-20f;
    worst_exp = std::max(worst_exp, error_ulp(reference::exp(x), std::exp(double{x})));
    const float small = x / 8;
    worst_tanh = std::max(worst_tanh, error_ulp(reference::tanh(small), std::tanh(double{small})));
  }
  EXPECT_LT(worst_exp, 1);
  EXPECT_LT(worst_tanh, 1.5);
  EXPECT_EQ(reference::exp(0), 1);
  EXPECT_EQ(reference::exp(-HUGE_VALF), 0);
  EXPECT_EQ(reference::exp(HUGE_VALF), HUGE_VALF);
  EXPECT_TRUE(std::isfinite(reference::exp(88.72283f)));
  EXPECT_EQ(reference::tanh(-HUGE_VALF), -1);
  EXPECT_EQ(reference::tanh(100), 1);
  EXPECT_TRUE(std::isnan(reference::exp(NAN)) && std::isnan(reference::tanh(NAN)));
}

// Every 2^10th float from 2^-30 to 8, both signs.
TEST(Math, ErfIsNear) {
  double worst = 0;
  for (uint32_t bits = bits_as<uint32_t>(0x1p-30f); bits < bits_as<uint32_t>(8.0f); bits += 1021)
    for (uint32_t sign : {0u, 0x80000000u}) {
      const float x = bits_as<float>(bits | sign);
      worst = std::max(worst, error_ulp(reference::erf(x), std::erf(double{x})));
    }
  EXPECT_LT(worst, 1.2);
  EXPECT_TRUE(std::signbit(reference::erf(-0.0f)));
  EXPECT_EQ(reference::erf(0), 0);
  EXPECT_EQ(reference::erf(HUGE_VALF), 1);
  EXPECT_EQ(reference::erf(-HUGE_VALF), -1);
  EXPECT_TRUE(std::isnan(reference::erf(NAN)));
}

TEST(Math, Log1pIsNear) {
  double worst = 0;
  for (uint32_t bits = bits_as<uint32_t>(0x1p-30f); bits <= bits_as<uint32_t>(1.0f); bits += 251) {
    const float y = bits_as<float>(bits);
    worst = std::max(worst, error_ulp(reference::log1p(y), std::log1p(double{y})));
  }
  EXPECT_LT(worst, 1.5);
  EXPECT_EQ(reference::log1p(0), 0);
  EXPECT_EQ(reference::log1p(1), 0.693147181f);
  EXPECT_TRUE(std::isnan(reference::log1p(NAN)));
}

TEST(Math, SoftplusIsNear) {
  double worst = 0;
  for (int i = -80 * 4096; i < 100 * 4096; ++i) {
    const float x = static_cast<float>(i) / 4096;
    const double exact = std::max(double{x}, 0.0) + std::log1p(std::exp(-std::abs(double{x})));
    worst = std::max(worst, error_ulp(reference::softplus(x), exact));
  }
  EXPECT_LT(worst, 2);
  EXPECT_EQ(reference::softplus(-HUGE_VALF), 0);
  EXPECT_EQ(reference::softplus(HUGE_VALF), HUGE_VALF);
  EXPECT_TRUE(std::isnan(reference::softplus(NAN)));
}

}  // namespace
}  // namespace tenon::cpu
