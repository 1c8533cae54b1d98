// How far float32 sums may be from the exact ones, for the tolerances of tests.
#pragma once

#include <cmath>

namespace longheads {

// The relative error of n float32 operations one upon the other is at most this (Higham, Accuracy and
// Stability of Numerical Algorithms, section 3.1: gamma_n, with u = 2^-24).
constexpr double Gamma(double n) { return n * 0x1p-24 / (1 - n * 0x1p-24); }

// The standard deviation of the error of n operations one upon the other, on numbers below `size`, where
// roundings are independent of each other; each is off by u at most, with a deviation of u / sqrt(3).
inline double Deviation(double n, double size) { return 0x1p-24 * std::sqrt(n / 3) * size; }

}  // namespace longheads
