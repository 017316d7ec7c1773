#pragma once

#include "sape2/kernels/attention.h"

#include <cstdint>
#include <string>
#include <vector>

/// Which CUDA kernels a call runs: a pure function of sizes, types, options and the device. It
/// needs neither a GPU nor a CUDA toolkit. The entry points of cuda.h choose by it too.
namespace sape2::kernels::cuda {

/// What the choice depends on of a GPU.
struct Device {
  int shared_memory = 0;  ///< bytes that a block may have
  int multiprocessors = 0;
  bool sm90a = false;  ///< the kernels' code for it is that of sm_90a: TMA, wgmma, clusters
};

/// Names that named_device() knows: "sm_80", "sm_90", …
std::vector<std::string> device_names();
/// A GPU of this compute capability with all its multiprocessors. Throws sape2::Error for other
/// names.
Device named_device(const std::string& name);

enum class Operator : std::uint8_t {
  plain,         ///< plain_attention_*
  axis_bias,     ///< axis_bias_attention_*
  sape2,         ///< sape2_attention_*
  axis_vectors,  ///< sape2_vectors_*
  cope,          ///< cope_attention_*
};

struct Call {
  Operator op = Operator::sape2;
  bool backward = false;
  Shape shape;
  DType dtype = DType::bfloat16;
  float scale = 1.0F;

  Form form = Form::direct;    ///< with a bias
  Source source = Source::k;   ///< Source::qk: two sets of vectors
  Span span = Span::between;   ///< with stage 1
  std::int64_t positions = 0;  ///< rows of a table; 0: as many as no position leaves

  // What pointers and strides add. The usual case is true for all.
  bool aligned = true;  ///< all rows of all (…, head_size) tensors begin at multiples of 16 bytes
  bool tables_aligned = true;  ///< position tables, likewise
  bool short_strides = true;   ///< 32 bits count the elements of a head
  bool wants_dq_dk = true;
};

/// The family of kernels that computes attention.
enum class Attention : std::uint8_t {
  none,  ///< stage 1 alone
  cope,  ///< cope/: contextual positions
  sm80,  ///< attention_sm80/: tiles by mma.sync
  sm90,  ///< attention_sm90/: tiles by TMA and wgmma
  head,  ///< attention_head/: one block per (image, head), stage 1 included
};

/// The family of kernels that computes stage 1.
enum class Stage1 : std::uint8_t {
  none,         ///< no stage 1, or vectors are given
  generic,      ///< axis_vectors/generic/
  specialized,  ///< axis_vectors/specialized/: head size and line length known to the compiler
  in_attention  ///< in the attention kernel
};

/// Reasons are null if a faster family serves, or if it has no part in the operator.
struct Choice {
  Attention attention = Attention::none;
  Stage1 stage1 = Stage1::none;
  bool stage1_in_clusters = false;  ///< its partial sums are added up in clusters of two blocks
  bool stage1_before_dkdv = false;  ///< backward: it runs between the dq pass and the dk/dv pass
  const char* not_head = nullptr;
  const char* not_sm90 = nullptr;
  const char* not_specialized = nullptr;
};

/// Empty if the fused kernels take a call, else the sentence that says why not. Alignment does not
/// count.
std::string refusal(const Call& call, const Device& device);

/// For calls that are not refused.
Choice choose(const Call& call, const Device& device);

const char* name_of(Attention attention);
const char* name_of(Stage1 stage1);

/// The kernels that a call launches, in order: "file: kernel".
std::vector<std::string> kernels_of(const Call& call, const Device& device);

/// Some lines for people: the call, the families and kernels it takes, and why not faster ones.
std::string explain(const Call& call, const Device& device);

}  // namespace sape2::kernels::cuda
