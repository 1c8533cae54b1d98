// How far float32 sums may be from the exact ones, for the tolerances of tests.
#pragma once

namespace longheads {

// The relative error of n float32 operations one upon the other is at most this (Higham, Accuracy and
// Stability of Numerical Algorithms, section 3.1: gamma_n, with u = 2^-24).
constexpr double Gamma(double n) { return n * 0x1p-24 / (1 - n * 0x1p-24); }

}  // namespace longheads
