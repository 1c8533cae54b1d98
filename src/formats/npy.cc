#include "formats/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/check.h"

namespace longheads {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie in memory");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kMostDims = 32;  // NumPy's own limit

template <typename T>
constexpr std::string_view kDescr = "";
template <>
constexpr std::string_view kDescr<float> = "<f4";
template <>
constexpr std::string_view kDescr<int32_t> = "<i4";
template <>
constexpr std::string_view kDescr<int64_t> = "<i8";
template <>
constexpr std::string_view kDescr<uint32_t> = "<u4";

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

// The header is a Python dictionary with three keys: {'descr': '<f4', 'fortran_order': False, 'shape': (3,)}.
// Every function skips white space and returns false, or nothing, where the text is another.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  std::optional<Header> Read() {
    Header header;
    if (!Take('{')) return std::nullopt;
    while (!Take('}')) {
      const std::optional<std::string> key = String();
      if (!key || !Take(':') || !Value(*key, header)) return std::nullopt;
      if (!Take(',')) {
        if (!Take('}')) return std::nullopt;
        break;
      }
    }
    SkipSpace();
    if (!text_.empty() || !header.descr || !header.fortran_order || !header.shape) return std::nullopt;
    return header;
  }

 private:
  void SkipSpace() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) text_.remove_prefix(1);
  }

  bool Take(char c) {
    SkipSpace();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }

  std::optional<std::string> String() {
    SkipSpace();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) return std::nullopt;
    const std::size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string value(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return value;
  }

  bool Value(std::string_view key, Header& header) {
    if (key == "descr" && !header.descr) {
      // A list of fields (a structured type) is no string: name it as it stands, to be refused by type.
      SkipSpace();
      if (text_.starts_with('[')) {
        const std::size_t end = text_.find(']');
        if (end == std::string_view::npos) return false;
        header.descr = std::string(text_.substr(0, end + 1));
        text_.remove_prefix(end + 1);
        return true;
      }
      header.descr = String();
      return header.descr.has_value();
    }
    if (key == "fortran_order" && !header.fortran_order) {
      if (TakeWord("True")) {
        header.fortran_order = true;
      } else if (TakeWord("False")) {
        header.fortran_order = false;
      }
      return header.fortran_order.has_value();
    }
    if (key == "shape" && !header.shape) return Shape(header.shape.emplace());
    return false;
  }

  bool Shape(std::vector<int64_t>& shape) {
    if (!Take('(')) return false;
    while (!Take(')')) {
      SkipSpace();
      int64_t n = 0;
      const auto [rest, error] = std::from_chars(text_.data(), text_.data() + text_.size(), n);
      if (error != std::errc() || n < 0 || static_cast<int64_t>(shape.size()) == kMostDims) return false;
      text_.remove_prefix(static_cast<std::size_t>(rest - text_.data()));
      shape.push_back(n);
      if (!Take(',')) return Take(')');
    }
    return true;
  }

  std::string_view text_;
};

// Elements of the shape, if that many times 8 bytes can be counted.
std::optional<uint64_t> Elements(std::span<const int64_t> shape) {
  std::optional<uint64_t> product = 1;
  for (const int64_t n : shape) {
    if (n < 0) return std::nullopt;
    product = CheckedMul(*product, static_cast<uint64_t>(n));
    if (!product) return std::nullopt;
  }
  if (*product > uint64_t{1} << 60) return std::nullopt;
  return product;
}

template <typename T>
Result<NpyArray> Copy(std::span<const std::byte> data, std::vector<int64_t> shape, std::string_view name) {
  const std::optional<uint64_t> n = Elements(shape);
  if (!n || *n * sizeof(T) != data.size()) {
    return InvalidInput(fmt::format(
        "{}: the header promises an array of shape ({}), but {} bytes of elements follow it: the file is cut "
        "off or damaged; save it again",
        name, fmt::join(shape, ", "), data.size()));
  }
  std::vector<T> values(*n);
  if (!values.empty()) std::memcpy(values.data(), data.data(), data.size());
  return NpyArray{.shape = std::move(shape), .values = std::move(values)};
}

}  // namespace

Result<NpyArray> ParseNpy(std::span<const std::byte> bytes, std::string_view name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic) || text.size() < 10) {
    return InvalidInput(fmt::format("{} is no .npy file: write it with numpy.save", name));
  }
  const int major = static_cast<uint8_t>(text[6]);
  const int minor = static_cast<uint8_t>(text[7]);
  if ((major != 1 && major != 2) || minor != 0) {
    return InvalidInput(
        fmt::format("{} is of the .npy version {}.{}, but only 1.0 and 2.0 are read: save it "
                    "again with numpy.save",
                    name, major, minor));
  }
  const auto damaged = [&] {
    return InvalidInput(fmt::format("{}: the .npy header is cut off or damaged: save it again", name));
  };
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t begin = 8 + length_bytes;
  if (text.size() < begin) return damaged();
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    length |= static_cast<std::size_t>(static_cast<uint8_t>(text[8 + i])) << (8 * i);
  }
  if (length > text.size() - begin) return damaged();
  std::optional<Header> header = HeaderReader(text.substr(begin, length)).Read();
  if (!header) return damaged();
  // A list in one dimension is the same in both orders.
  if (*header->fortran_order && header->shape->size() > 1) {
    return InvalidInput(fmt::format(
        "{} is in Fortran order, but C order is needed: save numpy.ascontiguousarray(array)", name));
  }
  const std::span<const std::byte> data = bytes.subspan(begin + length);
  const std::string& descr = *header->descr;
  if (descr == kDescr<float>) return Copy<float>(data, std::move(*header->shape), name);
  if (descr == kDescr<int32_t>) return Copy<int32_t>(data, std::move(*header->shape), name);
  if (descr == kDescr<int64_t>) return Copy<int64_t>(data, std::move(*header->shape), name);
  if (descr == kDescr<uint32_t>) return Copy<uint32_t>(data, std::move(*header->shape), name);
  return InvalidInput(
      fmt::format("{} holds elements of type {}, but only little-endian float32, int32, int64 and uint32 are "
                  "read: save array.astype('float32'), or another of them",
                  name, descr));
}

Result<NpyArray> ReadNpy(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (!file) {
    return InvalidInput(fmt::format("{}: cannot open it: {}", path, std::strerror(errno)));
  }
  struct stat info;
  if (fstat(fileno(file.get()), &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidInput(fmt::format("{} is no regular file: name a .npy file", path));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.st_size));
  if (!bytes.empty() && std::fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) {
    return MakeError(ErrorKind::kIo, fmt::format("{}: cannot read its {} bytes", path, bytes.size()));
  }
  return ParseNpy(bytes, path);
}

template <typename T>
Result<NpyWriter<T>> NpyWriter<T>::Create(const std::string& path, std::span<const int64_t> shape) {
  const std::optional<uint64_t> n = Elements(shape);
  if (!n || static_cast<int64_t>(shape.size()) > kMostDims) {
    return InvalidInput(
        fmt::format("{}: an array of shape ({}) is too large for a file", path, fmt::join(shape, ", ")));
  }
  LH_ASSIGN(OutputFile file, OutputFile::Create(path));
  std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                       kDescr<T>, fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  // Elements begin at a multiple of 64 bytes, after a line's end.
  while ((kMagic.size() + 4 + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string header(kMagic);
  header +=
      {'\1', '\0', static_cast<char>(dictionary.size() % 256), static_cast<char>(dictionary.size() / 256)};
  header += dictionary;
  LH_TRY(file.Write(std::as_bytes(std::span(header))));
  return NpyWriter(std::move(file), static_cast<int64_t>(*n));
}

template <typename T>
Status NpyWriter<T>::Append(std::span<const T> values) {
  LH_CHECK(static_cast<int64_t>(values.size()) <= n_missing_);
  LH_TRY(file_.Write(std::as_bytes(values)));
  n_missing_ -= static_cast<int64_t>(values.size());
  return {};
}

template <typename T>
Status NpyWriter<T>::Close() {
  LH_CHECK(n_missing_ == 0);
  return file_.Commit();
}

template class NpyWriter<float>;
template class NpyWriter<int32_t>;
template class NpyWriter<int64_t>;
template class NpyWriter<uint32_t>;

}  // namespace longheads
