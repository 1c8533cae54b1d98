// Reads GGUF v2 and v3 files: name -> view of a tensor, key -> metadata. Every offset, count and size is
// checked against the file before it is used; nothing is copied but names and metadata. Knows no model
// family.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace longheads {

// A metadata value. Integers of every width widen to int64_t or uint64_t, floats to double; arrays keep one
// element type, and an array of bools is one of uint64_t (0 or 1).
using GgufValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<int64_t>,
                               std::vector<uint64_t>, std::vector<double>, std::vector<std::string>>;

class GgufFile {
 public:
  // Maps the file and reads its header. The message names the file and what is wrong.
  static Result<GgufFile> Open(const std::string& path);
  // The same over bytes that the caller keeps alive; `name` stands for the path in messages. A tensor's data
  // is aligned (general.alignment, 32 by default) relative to the first byte.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes, std::string name);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& name() const;
  uint64_t file_bytes() const;
  std::span<const std::byte> bytes() const;  // all of them, as they are mapped
  uint32_t version() const;

  // All keys and tensor names, in file order.
  const std::vector<std::string>& keys() const;
  const std::vector<std::string>& tensor_names() const;

  // Null where there is none.
  const GgufValue* Find(std::string_view key) const;
  const TensorView* FindTensor(std::string_view name) const;

  // The value of a key under the wanted type; a missing key or one of another type is an error that names the
  // key. GetInt takes either signedness where the value fits.
  Result<int64_t> GetInt(std::string_view key) const;
  Result<double> GetFloat(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string> GetString(std::string_view key) const;
  // Arrays; the pointers live as long as the file.
  Result<const std::vector<std::string>*> GetStrings(std::string_view key) const;
  Result<std::vector<int64_t>> GetInts(std::string_view key) const;
  Result<std::vector<double>> GetFloats(std::string_view key) const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longheads
