// A figure that was measured several times.
#pragma once

#include <string>
#include <vector>

namespace longheads {

struct Measured {
  double median = 0;
  double low = 0;  // least and most of the repeats
  double high = 0;
  int n = 0;        // repeats; 0: not measured
  double mean = 0;  // of seconds; of a speed, what the mean of the seconds gives
};

// Of at least one value. The median of an even number is the mean of the two in the middle.
Measured Summarise(std::vector<double> values);

// Of amount / value for each repeat: a speed from seconds.
Measured PerSecond(double amount, const Measured& seconds);

// "123.4 (120.1-125.0)", of values divided by `unit`.
std::string Format(const Measured& measured, double unit = 1);

}  // namespace longheads
