#include "scoring/edit_ratio.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scoring/code_points.h"
#include "scoring/lcs.h"

namespace longheads {
namespace {

struct Block {
  std::size_t a = 0;
  std::size_t b = 0;
  std::size_t size = 0;
};

struct Range {
  std::size_t a_begin;
  std::size_t a_end;
  std::size_t b_begin;
  std::size_t b_end;
};

// difflib's SequenceMatcher without junk.
class MatchingBlocks {
 public:
  MatchingBlocks(std::u32string_view a, std::u32string_view b) : a_(a), b_(b) {
    for (std::size_t j = 0; j < b.size(); ++j) places_[b[j]].push_back(j);
    // Popular characters of a long text start no block; a block may grow over them.
    constexpr std::size_t kLong = 200;
    if (b.size() >= kLong) {
      const std::size_t most = b.size() / 100 + 1;
      std::erase_if(places_, [most](const auto& entry) { return entry.second.size() > most; });
    }
  }

  std::size_t TotalSize() {
    std::size_t total = 0;
    std::vector<Range> open = {{0, a_.size(), 0, b_.size()}};
    while (!open.empty()) {
      const Range range = open.back();
      open.pop_back();
      const Block block = Longest(range);
      if (block.size == 0) continue;
      total += block.size;
      open.push_back({range.a_begin, block.a, range.b_begin, block.b});
      open.push_back({block.a + block.size, range.a_end, block.b + block.size, range.b_end});
    }
    return total;
  }

 private:
  // Of the longest, the one that begins first in a, and of those the first in b.
  Block Longest(const Range& range) {
    Block best{range.a_begin, range.b_begin, 0};
    std::unordered_map<std::size_t, std::size_t> above;  // end in b of a block that ends at i - 1 -> its size
    for (std::size_t i = range.a_begin; i < range.a_end; ++i) {
      std::unordered_map<std::size_t, std::size_t> here;
      const auto places = places_.find(a_[i]);
      if (places != places_.end()) {
        for (const std::size_t j : places->second) {
          if (j < range.b_begin) continue;
          if (j >= range.b_end) break;
          const auto before = j == 0 ? above.end() : above.find(j - 1);
          const std::size_t size = (before == above.end() ? 0 : before->second) + 1;
          here[j] = size;
          if (size > best.size) best = {i + 1 - size, j + 1 - size, size};
        }
      }
      above = std::move(here);
    }
    while (best.a > range.a_begin && best.b > range.b_begin && a_[best.a - 1] == b_[best.b - 1]) {
      --best.a, --best.b, ++best.size;
    }
    while (best.a + best.size < range.a_end && best.b + best.size < range.b_end &&
           a_[best.a + best.size] == b_[best.b + best.size]) {
      ++best.size;
    }
    return best;
  }

  std::u32string_view a_;
  std::u32string_view b_;
  std::unordered_map<char32_t, std::vector<std::size_t>> places_;  // of each character in b, ascending
};

double ShareOfBoth(std::size_t matched, std::size_t n_a, std::size_t n_b) {
  return n_a + n_b == 0 ? 1.0 : 2.0 * static_cast<double>(matched) / static_cast<double>(n_a + n_b);
}

std::vector<uint32_t> Numbers(std::string_view text) {
  const std::u32string code_points = ToCodePoints(text);
  return {code_points.begin(), code_points.end()};
}

}  // namespace

double IndelRatio(std::string_view a, std::string_view b) {
  const std::vector<uint32_t> x = Numbers(a);
  const std::vector<uint32_t> y = Numbers(b);
  return ShareOfBoth(LcsLength(x, y), x.size(), y.size());
}

double MatchingBlocksRatio(std::string_view a, std::string_view b) {
  const std::u32string x = ToCodePoints(a);
  const std::u32string y = ToCodePoints(b);
  return ShareOfBoth(MatchingBlocks(x, y).TotalSize(), x.size(), y.size());
}

int FuzzyPercent(std::string_view a, std::string_view b, EditRatio ratio) {
  if (a == b) return 100;
  if (a.empty() || b.empty()) return 0;
  const double share = ratio == EditRatio::kIndel ? IndelRatio(a, b) : MatchingBlocksRatio(a, b);
  return static_cast<int>(std::nearbyint(100 * share));  // halves to even: the rounding mode nobody changes
}

}  // namespace longheads
