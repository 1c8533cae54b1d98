// 95% intervals of what an experiment measured. Samples that ask about one document are no independent draws:
// the documents are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longheads {

struct Interval {
  double low = 0, high = 0;
};

// Wilson's score interval (1927) of a share p in n trials; n need not be whole. n = 0 says nothing: 0 to 1.
Interval WilsonInterval(double share, double n);

// The scores of one cell, each with the document that it belongs to. Documents are independent, what is
// within one is not.
class ClusteredScores {
 public:
  void Add(const std::string& document, double score);

  int64_t n_samples() const { return n_; }
  int64_t n_documents() const { return static_cast<int64_t>(documents_.size()); }
  double mean() const;
  // The mean's, from the residuals' sums over documents (Liang & Zeger 1986), times sqrt(D / (D - 1)) for D
  // documents. With one document it is 0 and says nothing.
  double standard_error() const;

  // Of scores in 0 .. 1: Wilson's interval of the mean with as many trials as would give this standard error,
  // p (1 - p) / SE^2, times (z / t)^2, since so few documents know their scatter only roughly: t is
  // Student's 97.5% point of D - 1 degrees of freedom, z the normal one. Where all scores are alike, with as
  // many as there are documents. Where each document is right or wrong as a whole this is Wilson's interval
  // itself, documents being its trials.
  Interval ShareInterval() const;
  // Of any scores: the mean -/+ t standard errors. With one document it is the mean and says nothing.
  Interval NormalInterval() const;

 private:
  struct Document {
    std::string name;
    double sum = 0;
    int64_t n = 0;
    bool one_outcome = true;  // all its scores are 0, or all are 1
  };
  std::vector<Document> documents_;  // in the order of their first sample
  int64_t n_ = 0;
  double sum_ = 0;
};

// Of the difference a - b of two shares over the same samples, given the correlation of their scores (0 where
// one of them does not vary): Newcombe's interval of paired proportions (1998, Statistics in Medicine 17,
// 2635, method 8), from the ShareInterval of each. Unlike the mean's -/+ t standard errors it stays within -1
// to 1, and says something where all differences are alike.
Interval PairedShareInterval(const ClusteredScores& a, const ClusteredScores& b, double correlation);

}  // namespace longheads
