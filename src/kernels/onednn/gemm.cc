#include "kernels/onednn/gemm.h"

#include <omp.h>

#include <cstring>
#include <dnnl.hpp>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/simd_kernels.h"
#include "kernels/vector_ops.h"
#include "tensor/tensor.h"

namespace longheads::onednn {
namespace {

using dnnl::memory;

const dnnl::engine& CpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// Debian's oneDNN runs its loops on OpenMP; here one of our own threads calls it, and it must not start
// others.
void OneThread() {
  thread_local bool set = false;
  if (!set) omp_set_num_threads(1);
  set = true;
}

bool HasIsa(std::string_view backend) {
  __builtin_cpu_init();
  if (backend == "avx512bf16") return __builtin_cpu_supports("avx512bf16");
  if (backend == "avx512") {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  }
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

class OneDnnGemm : public Gemm {
 public:
  OneDnnGemm(int64_t k, int64_t n, ComputeType type, bool native_bf16, const VectorKernels& conversions,
             int n_threads)
      : Gemm(k, n),
        conversions_(conversions),
        round_(type == ComputeType::kBF16 && !native_bf16),
        threads_(n_threads) {
    OneThread();
    type_ = type == ComputeType::kBF16 && native_bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    element_ = type_ == memory::data_type::bf16 ? 2 : 4;
    full_ = MakeShape(std::min(n, kPanel));
    last_ = n % kPanel != 0 && n > kPanel ? MakeShape(n % kPanel) : full_;
    stride_ = static_cast<int64_t>(std::max(full_.weights.get_size(), last_.weights.get_size()));
    stride_ = (stride_ + 63) / 64 * 64;
    for (Thread& thread : threads_) {
      thread.y.Reset(kTileRows * kPanel);
      thread.weights.Reset(type_ == memory::data_type::bf16 ? kPanel * k : 0);
      const std::size_t scratch = std::max(full_.scratch.get_size(), last_.scratch.get_size());
      thread.scratch.Reset(static_cast<int64_t>(scratch));
    }
  }

  int64_t panel_stride() const override { return stride_; }

  void Pack(int64_t panel, float* weights, std::byte* packed, int thread_number) const override {
    OneThread();
    Thread& thread = threads_[static_cast<std::size_t>(thread_number)];
    const Shape& shape = ShapeOf(panel);
    const int64_t count = panel_width(panel) * k();
    void* plain = weights;
    if (type_ == memory::data_type::bf16) {
      conversions_.to_bf16(weights, count, thread.weights.data());
      plain = thread.weights.data();
    } else if (round_) {
      RoundInPlace(weights, count);
    }
    if (shape.weights == shape.plain_weights) {
      std::memcpy(packed, plain, static_cast<std::size_t>(count) * element_);
      return;
    }
    dnnl::stream stream(CpuEngine());
    memory from(shape.plain_weights, CpuEngine(), plain);
    memory to(shape.weights, CpuEngine(), packed);
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
  }

  int64_t row_bytes() const override { return k() * static_cast<int64_t>(element_); }
  void Place(const float* x, int64_t n, int64_t row, int64_t column, std::byte* rows) const override {
    std::byte* const to = rows + (row * k() + column) * static_cast<int64_t>(element_);
    if (type_ == memory::data_type::bf16) {
      conversions_.to_bf16(x, n, reinterpret_cast<BFloat16*>(to));
      return;
    }
    std::memcpy(to, x, sizeof(float) * static_cast<std::size_t>(n));
    if (round_) RoundInPlace(reinterpret_cast<float*>(to), n);
  }

  void Multiply(int64_t panel, const std::byte* x, const std::byte* packed, int64_t n_rows, float* y,
                int64_t y_stride, int thread_number) const override {
    OneThread();
    Thread& thread = threads_[static_cast<std::size_t>(thread_number)];
    const Shape& shape = ShapeOf(panel);
    const int64_t width = panel_width(panel);
    dnnl::stream stream(CpuEngine());
    shape.product.execute(
        stream, {{DNNL_ARG_SRC, memory(shape.x, CpuEngine(), const_cast<std::byte*>(x))},
                 {DNNL_ARG_WEIGHTS, memory(shape.weights, CpuEngine(), const_cast<std::byte*>(packed))},
                 {DNNL_ARG_DST, memory(shape.y, CpuEngine(), thread.y.data())},
                 {DNNL_ARG_SCRATCHPAD, memory(shape.scratch, CpuEngine(), thread.scratch.data())}});
    stream.wait();
    // Not by the library, at a row's place among all outputs: where the tile is not whole it would write too
    // much, and a product for each of the two does not sum in one order.
    for (int64_t row = 0; row < n_rows; ++row) {
      std::memcpy(y + row * y_stride, thread.y.data() + row * width,
                  sizeof(float) * static_cast<std::size_t>(width));
    }
  }

 private:
  struct Shape {
    memory::desc x, weights, plain_weights, y, scratch;
    dnnl::matmul product;
  };
  struct Thread {
    Buffer<float> y;            // [kTileRows, panel_width]
    Buffer<BFloat16> weights;   // one panel on its way to its packed form
    Buffer<std::byte> scratch;  // oneDNN's own
  };

  Shape MakeShape(int64_t width) const {
    Shape shape;
    shape.x = memory::desc({kTileRows, k()}, type_, memory::dims{k(), 1});
    shape.plain_weights = memory::desc({k(), width}, type_, memory::dims{1, k()});
    shape.y = memory::desc({kTileRows, width}, memory::data_type::f32, memory::dims{width, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    // In bfloat16 the library chooses how weights lie. In float32 its plain form is as fast as its packed
    // one, and saves the pass over the weights.
    const memory::desc weights = type_ == memory::data_type::bf16
                                     ? memory::desc({k(), width}, type_, memory::format_tag::any)
                                     : shape.plain_weights;
    const dnnl::matmul::primitive_desc description({shape.x, weights, shape.y}, attributes, CpuEngine());
    shape.weights = description.weights_desc();
    shape.scratch = description.scratchpad_desc();
    shape.product = dnnl::matmul(description);
    return shape;
  }

  const Shape& ShapeOf(int64_t panel) const { return panel + 1 < n_panels() ? full_ : last_; }

  // Rounded to bfloat16 but kept as float32: products of such numbers are exact in float32, so this is the
  // bfloat16 product on a machine without the instructions.
  void RoundInPlace(float* values, int64_t n) const {
    BFloat16 half[256];
    for (int64_t i = 0; i < n; i += 256) {
      const int64_t count = std::min<int64_t>(256, n - i);
      conversions_.to_bf16(values + i, count, half);
      conversions_.from_bf16(half, count, values + i);
    }
  }

  const VectorKernels& conversions_;
  bool round_;
  memory::data_type type_;
  std::size_t element_;
  Shape full_, last_;
  int64_t stride_;
  mutable std::vector<Thread> threads_;
};

class SquareGemm : public PeakGemm {
 public:
  explicit SquareGemm(ComputeType type) {
    using Type = memory::data_type;
    OneThread();
    const Type a = type == ComputeType::kInt8   ? Type::u8
                   : type == ComputeType::kBF16 ? Type::bf16
                                                : Type::f32;
    const Type b = type == ComputeType::kInt8 ? Type::s8 : a;
    const Type sum = type == ComputeType::kInt8 ? Type::s32 : Type::f32;
    const memory::desc sums({kSize, kSize}, sum, memory::format_tag::ab);
    const memory::desc any({kSize, kSize}, b, memory::format_tag::any);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // another thread may run it
    const dnnl::matmul::primitive_desc description(
        {memory::desc({kSize, kSize}, a, memory::format_tag::ab), any, sums}, attributes, CpuEngine());
    product_ = dnnl::matmul(description);
    a_ = Filled(description.src_desc());
    b_ = Filled(description.weights_desc());
    sums_ = Filled(description.dst_desc());
    scratch_ = memory(description.scratchpad_desc(), CpuEngine());
  }

  double operations() const override { return 2.0 * kSize * kSize * kSize; }

  void Run() override {
    OneThread();
    dnnl::stream stream(CpuEngine());
    product_.execute(
        stream,
        {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, sums_}, {DNNL_ARG_SCRATCHPAD, scratch_}});
    stream.wait();
  }

 private:
  static constexpr int64_t kSize = 1152;  // a multiple of every tile

  static memory Filled(const memory::desc& description) {
    memory filled(description, CpuEngine());
    // 0.0115 in both float types, 60 in bytes.
    std::memset(filled.get_data_handle(), 0x3C, description.get_size());
    return filled;
  }

  dnnl::matmul product_;
  memory a_, b_, sums_, scratch_;
};

template <bool kNativeBf16>
std::unique_ptr<Gemm> Create(int64_t k, int64_t n, ComputeType type, const VectorKernels& conversions,
                             int n_threads) {
  return std::make_unique<OneDnnGemm>(k, n, type, kNativeBf16, conversions, n_threads);
}

constexpr GemmKernels kWithBf16 = {.create = Create<true>, .native_bf16 = true};
constexpr GemmKernels kWithoutBf16 = {.create = Create<false>, .native_bf16 = false};

}  // namespace

std::vector<Implementation<GemmKernels>> Implementations() {
  std::vector<Implementation<GemmKernels>> list;
  const std::pair<std::string_view, const char*> others[] = {
      {"avx512bf16", "this processor lacks AVX-512-BF16"},
      {"avx512", "this processor lacks AVX-512"},
      {"avx2", "this processor lacks AVX2 or FMA"}};
  for (const auto& [name, reason] : others) {
    list.push_back({name, HasIsa(name) ? "" : reason, name == "avx512bf16" ? &kWithBf16 : &kWithoutBf16});
  }
  return list;
}

std::unique_ptr<PeakGemm> MakePeakGemm(ComputeType type) {
  // What oneDNN may use, which a backend by name limits.
  constexpr auto kBf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  const auto usable = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  if (type == ComputeType::kBF16 && (usable & kBf16) != kBf16) return nullptr;
  return std::make_unique<SquareGemm>(type);
}

bool MayUseAmx() {
  constexpr auto kAmx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kAmx) == kAmx;
}

bool Limit(std::string_view backend) {
  const auto limit = [](dnnl::cpu_isa isa) {
    return dnnl::set_max_cpu_isa(isa) == dnnl::status::success || dnnl::get_effective_cpu_isa() == isa;
  };
  if (backend == "avx2") return limit(dnnl::cpu_isa::avx2);
  if (backend == "avx512") return limit(dnnl::cpu_isa::avx512_core);
  if (backend == "avx512bf16") return limit(dnnl::cpu_isa::avx512_core_bf16);
  return true;
}

}  // namespace longheads::onednn
