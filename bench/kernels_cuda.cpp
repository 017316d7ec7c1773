// Times the CUDA kernels themselves, called from C++ in CUDA graphs: no operator, no Python, no
// launch gaps. One line a shape: microseconds of forward and backward, in brackets of forward
// alone, and the scratch memory of both.
#include "sape2/base/error.h"
#include "sape2/kernels/cuda.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace sape2::kernels;

constexpr char kUsage[] =
    "usage: kernels_cuda_bench [--once] [--float16] [--passes N] [--replays N] [--only NAME] "
    "SHAPE…\n"
    "  SHAPE      images x heads : rows x columns, with + prefix tokens and / head size if there\n"
    "             are any: 8x6:32x32, 1x6:64x64+1, 128x6:8x8/32; head size 64 if not given\n"
    "  --only     plain, sape2-k or sape2-rel-k; else all three\n"
    "  --passes   of one graph, 20 if not given\n"
    "  --replays  of each graph, whose least counts; 6 if not given\n"
    "  --once     call each once and time nothing, for a profiler\n";

void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess)
    throw sape2::Error(std::string(what) + " failed: " + cudaGetErrorString(code));
}

// ------------------------------------------------------------------------------- device memory

/// Everything a case needs, given back together.
class DeviceMemory {
 public:
  explicit DeviceMemory(DType dtype) : dtype_(dtype) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    for (void* block : blocks_) cudaFree(block);
  }

  void* bytes(std::size_t count) {
    void* block = nullptr;
    check(cudaMalloc(&block, std::max<std::size_t>(count, 1)), "allocating GPU memory");
    blocks_.push_back(block);
    return block;
  }
  float* floats(std::size_t count) { return static_cast<float*>(bytes(count * sizeof(float))); }

  /// Normal numbers in the case's 16-bit type, the same again after some thousand rows.
  void* random_tensor(std::size_t count) {
    constexpr std::size_t kFresh = 262139;
    std::vector<std::uint16_t> host(count);
    for (std::size_t i = 0; i < count; ++i)
      host[i] = i < kFresh ? rounded(normal_(engine_)) : host[i - kFresh];
    return copied(host);
  }
  float* random_floats(std::size_t count, float spread, float mean = 0) {
    std::vector<float> host(count);
    for (auto& x : host) x = mean + spread * normal_(engine_);
    return copied(host);
  }

 private:
  template <class T>
  T* copied(const std::vector<T>& host) {
    void* const block = bytes(host.size() * sizeof(T));
    check(cudaMemcpy(block, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
          "copying to the GPU");
    return static_cast<T*>(block);
  }
  /// Cut off to 16 bits; float16 from its range of ordinary numbers only.
  std::uint16_t rounded(float x) const {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if (dtype_ == DType::bfloat16) return static_cast<std::uint16_t>(bits >> 16);
    const auto exponent = static_cast<int>(bits >> 23 & 0xff) - 127 + 15;
    if (exponent <= 0) return 0;
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | exponent << 10 |
                                      (bits >> 13 & 0x3ff));
  }

  DType dtype_;
  std::vector<void*> blocks_;
  std::mt19937 engine_{1};
  std::normal_distribution<float> normal_;
};

// --------------------------------------------------------------------------------------- cases

struct Options {
  DType dtype = DType::bfloat16;
  bool once = false;
  int passes = 20, replays = 6;
  std::string only;
  std::vector<Shape> shapes;
};

constexpr const char* kKinds[] = {"plain", "sape2-k", "sape2-rel-k"};

/// One shape with one encoding; both directions can be called any number of times.
struct Case {
  std::function<void()> forward, backward;
  std::size_t scratch_bytes;  // of the larger direction, and what one keeps for the other
};

Case make_case(const std::string& kind, const Shape& shape, DType dtype, DeviceMemory& memory,
               cudaStream_t stream) {
  const bool relative = kind == "sape2-rel-k";
  const std::int64_t n = shape.tokens(), d = shape.head_size;
  const std::size_t rows = shape.images * shape.heads * n, elements = rows * d;
  const auto view = [&](void* data) { return View{data, shape.heads * n * d, n * d, d}; };
  const auto const_view = [&](const void* data) {
    return ConstView{data, shape.heads * n * d, n * d, d};
  };
  AttentionInputs in;
  in.shape = shape;
  in.dtype = dtype;
  in.scale = 1 / std::sqrt(static_cast<float>(d));
  in.q = const_view(memory.random_tensor(elements));
  in.k = const_view(memory.random_tensor(elements));
  in.v = const_view(memory.random_tensor(elements));
  AttentionOutputs out;
  out.out = view(memory.bytes(2 * elements));
  out.softmax = static_cast<SoftmaxRow*>(memory.bytes(rows * sizeof(SoftmaxRow)));
  AttentionSaved saved;
  saved.out = const_view(out.out.data);
  saved.softmax = out.softmax;
  saved.dout = const_view(memory.random_tensor(elements));
  AttentionGradients d_in;
  for (View* gradient : {&d_in.dq, &d_in.dk, &d_in.dv})
    *gradient = view(memory.bytes(2 * elements));
  const auto launch = [&](std::size_t bytes) {
    return cuda::Launch{stream, memory.bytes(bytes), bytes};
  };

  if (kind == "plain") {
    const auto there = launch(cuda::plain_attention_workspace(in, false));
    const auto back = launch(cuda::plain_attention_workspace(in, true));
    return {[=] { cuda::plain_attention_forward(in, out, there); },
            [=] { cuda::plain_attention_backward(in, saved, d_in, back); },
            std::max(there.workspace_bytes, back.workspace_bytes)};
  }

  const std::int64_t longest = std::max(shape.rows, shape.cols);
  Encoding encoding;
  encoding.source = Source::k;
  encoding.span = relative ? Span::between : Span::suffix;
  encoding.positions = relative ? 2 * longest - 1 : longest + 1;
  const std::size_t table = encoding.positions * d;
  encoding.k_tables.x = memory.random_floats(table, 0.2F);
  encoding.k_tables.y = memory.random_floats(table, 0.2F);
  EncodingGradients d_encoding{};
  d_encoding.k_tables.dx = memory.floats(table);
  d_encoding.k_tables.dy = memory.floats(table);
  if (relative) {
    encoding.gate_scale = memory.random_floats(shape.heads, 0, in.scale);
    encoding.gate_offset = memory.random_floats(shape.heads, 0, 2);
    d_encoding.dgate_scale = memory.floats(shape.heads);
    d_encoding.dgate_offset = memory.floats(shape.heads);
  }
  const Form form = relative ? Form::direct : Form::distance;
  Bias bias;
  bias.inside = !relative;
  const std::size_t vectors = cuda::sape2_attention_stage1_bytes(in, encoding, form);
  const bool kept = vectors > 0;
  if (kept) saved.stage1 = out.stage1 = memory.bytes(vectors);
  const auto there = launch(cuda::sape2_attention_workspace(in, encoding, form, false, kept));
  const auto back = launch(cuda::sape2_attention_workspace(in, encoding, form, true, kept));
  return {[=] { cuda::sape2_attention_forward(in, encoding, form, bias, out, there); },
          [=] {
            cuda::sape2_attention_backward(in, encoding, form, bias, saved, d_in, d_encoding,
                                           nullptr, back);
          },
          vectors + std::max(there.workspace_bytes, back.workspace_bytes)};
}

// ---------------------------------------------------------------------------------------- time

/// Microseconds of one pass, the least of several replays of a graph.
double time_passes(const std::function<void()>& pass, const Options& options, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "beginning a graph");
  for (int i = 0; i < options.passes; ++i) pass();
  check(cudaStreamEndCapture(stream, &graph), "ending a graph");
  check(cudaGraphInstantiate(&ready, graph, 0), "making a graph");
  check(cudaEventCreate(&begin), "making an event");
  check(cudaEventCreate(&end), "making an event");
  check(cudaGraphLaunch(ready, stream), "replaying a graph");
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < options.replays; ++i) {
    check(cudaEventRecord(begin, stream), "recording an event");
    check(cudaGraphLaunch(ready, stream), "replaying a graph");
    check(cudaEventRecord(end, stream), "recording an event");
    check(cudaEventSynchronize(end), "waiting for a graph");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "reading the time");
    least = std::min(least, 1000.0 * milliseconds / options.passes);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  return least;
}

void run_shape(const Shape& shape, const Options& options) {
  char name[96];
  std::snprintf(name, sizeof name, "%lldx%lld:%lldx%lld+%lld/%lld",
                static_cast<long long>(shape.images), static_cast<long long>(shape.heads),
                static_cast<long long>(shape.rows), static_cast<long long>(shape.cols),
                static_cast<long long>(shape.prefix), static_cast<long long>(shape.head_size));
  std::printf("%-20s", name);
  for (const char* kind : kKinds) {
    if (!options.only.empty() && options.only != kind) continue;
    DeviceMemory memory(options.dtype);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreate(&stream), "making a stream");
    const auto both = make_case(kind, shape, options.dtype, memory, stream);
    both.forward();
    both.backward();
    check(cudaStreamSynchronize(stream), "running the kernels");
    if (!options.once) {
      const double forward = time_passes(both.forward, options, stream);
      const auto pass = [&] {
        both.forward();
        both.backward();
      };
      std::printf("  %s %7.1f (%6.1f) %5.1f MiB", kind, time_passes(pass, options, stream), forward,
                  static_cast<double>(both.scratch_bytes) / (1 << 20));
    }
    cudaStreamDestroy(stream);
  }
  std::printf("\n");
  std::fflush(stdout);
}

// ------------------------------------------------------------------------------------ arguments

/// Takes a number of at least `least` and the character before it off the front of `text`.
std::int64_t take_number(std::string_view& text, std::string_view before, std::int64_t least) {
  std::int64_t number = 0;
  if (!text.starts_with(before)) throw std::invalid_argument("");
  text.remove_prefix(before.size());
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || number < least || number > 1000000) throw std::invalid_argument("");
  text.remove_prefix(end - text.data());
  return number;
}

Shape parse_shape(std::string_view text) {
  const std::string whole(text);
  try {
    Shape shape{};
    shape.images = take_number(text, "", 1);
    shape.heads = take_number(text, "x", 1);
    shape.rows = take_number(text, ":", 1);
    shape.cols = take_number(text, "x", 1);
    shape.prefix = text.starts_with('+') ? take_number(text, "+", 0) : 0;
    shape.head_size = text.starts_with('/') ? take_number(text, "/", 1) : 64;
    if (text.empty()) return shape;
  } catch (const std::invalid_argument&) {
  }
  throw sape2::Error("'" + whole + "' is no shape; one like 8x6:32x32 was expected\n" + kUsage);
}

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const auto value = [&] {
      if (i + 1 == count)
        throw sape2::Error(std::string(word) + " needs a value behind it\n" + kUsage);
      return std::string_view(words[++i]);
    };
    const auto positive = [&] {
      auto text = value();
      const std::string whole(text);
      try {
        const auto number = take_number(text, "", 1);
        if (text.empty()) return static_cast<int>(number);
      } catch (const std::invalid_argument&) {
      }
      throw sape2::Error(std::string(word) + " is '" + whole + "'; a positive number was expected");
    };
    if (word == "--once") {
      options.once = true;
    } else if (word == "--float16") {
      options.dtype = DType::float16;
    } else if (word == "--passes") {
      options.passes = positive();
    } else if (word == "--replays") {
      options.replays = positive();
    } else if (word == "--only") {
      options.only = value();
      if (std::ranges::find(kKinds, options.only) == std::end(kKinds))
        throw sape2::Error("--only is '" + options.only +
                           "'; plain, sape2-k or sape2-rel-k was expected");
    } else {
      options.shapes.push_back(parse_shape(word));
    }
  }
  if (options.shapes.empty()) throw sape2::Error(kUsage);
  return options;
}

}  // namespace

int main(int count, char** words) {
  try {
    const auto options = parse(count, words);
    for (const auto& shape : options.shapes) run_shape(shape, options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
