// Reads and writes .npy files (NumPy's format, versions 1.0 and 2.0) as far as the engine exchanges them:
// little-endian arrays of float32, int32, int64 or uint32 in C order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "formats/output_file.h"

namespace longheads {

struct NpyArray {
  std::vector<int64_t> shape;  // outermost first; empty for a single number
  // Row-major. Which alternative is there is the file's element type.
  std::variant<std::vector<float>, std::vector<int32_t>, std::vector<int64_t>, std::vector<uint32_t>> values;

  // The elements where the file's type is T, else null.
  template <typename T>
  const std::vector<T>* As() const {
    return std::get_if<std::vector<T>>(&values);
  }
};

// The bytes of a whole file, neither more nor fewer than the header asks for; `name` stands for the path in
// messages.
Result<NpyArray> ParseNpy(std::span<const std::byte> bytes, std::string_view name);

// A regular file; the message names the path and the way out.
Result<NpyArray> ReadNpy(const std::string& path);

// Writes one array piece by piece, so that a large one need not lie in memory. T: float, int32_t, int64_t or
// uint32_t. The file is there once Close says so: until then, and for ever where something fails, `path`
// names what it named before.
template <typename T>
class NpyWriter {
 public:
  // The shape may have no more than 2^60 elements.
  static Result<NpyWriter> Create(const std::string& path, std::span<const int64_t> shape);

  // The next elements in row-major order. kIo where the system refuses them (a full disk).
  Status Append(std::span<const T> values);

  // To be called once every element is there.
  Status Close();

 private:
  NpyWriter(OutputFile file, int64_t n_missing) : file_(std::move(file)), n_missing_(n_missing) {}

  OutputFile file_;
  int64_t n_missing_;
};

// A whole array at once; values.size() is the product of the shape.
template <typename T>
Status WriteNpy(const std::string& path, std::span<const int64_t> shape, std::span<const T> values) {
  LH_ASSIGN(auto writer, NpyWriter<T>::Create(path, shape));
  LH_TRY(writer.Append(values));
  return writer.Close();
}

}  // namespace longheads
