#pragma once

#include "sape2/kernels/types.h"

#include <cstddef>
#include <cstdint>

/// What a training step on an NVIDIA GPU needs beside attention and matrix products, each in one
/// pass over its data. Matrices are contiguous, (rows, width); pointers are device pointers; sums
/// have a fixed order, so that two runs agree to the last bit; nothing synchronises with the host.
/// Functions throw sape2::Error if parameters make no sense and if CUDA fails.
namespace sape2::kernels::cuda {

/// Rows wider than this are refused by residual_norm.
inline constexpr std::int64_t kWidestNorm = 2048;

/// Scratch for the column sums of a matrix, `sums` of them at once, in bytes.
std::size_t column_sums_workspace(std::int64_t rows, std::int64_t width, int sums);

// --------------------------------------------------------------------- residual and LayerNorm

/// sum = x + factor · (branch + branch_bias); normed = LayerNorm(sum) · weight + bias.
struct ResidualNorm {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t rows_per_image = 1;
  DType dtype = DType::float32;
  float epsilon = 0;
  const void* x = nullptr;
  const void* branch = nullptr;       ///< null: no branch, and no sum is written
  const void* branch_bias = nullptr;  ///< (width) or null
  const float* factor = nullptr;      ///< (images) or null: 1
  const void* weight = nullptr;       ///< (width)
  const void* bias = nullptr;         ///< (width)
};

struct ResidualNormOutputs {
  void* sum = nullptr;
  void* normed = nullptr;
  float* statistics = nullptr;  ///< (rows, 2): mean and 1/deviation, for the backward pass
};

void residual_norm_forward(const ResidualNorm& params, const ResidualNormOutputs& outputs,
                           void* stream);

struct ResidualNormGradients {
  const void* dsum = nullptr;  ///< null: nothing but the norm reads the sum
  const void* dnormed = nullptr;
  void* dx = nullptr;
  void* dbranch = nullptr;  ///< only where there is a factor; otherwise it equals dx
  void* dweight = nullptr;  ///< (width), all three in `dtype`
  void* dbias = nullptr;
  void* dbranch_bias = nullptr;  ///< null: not wanted
};

/// `sum` and `statistics` are the forward pass's; where there is no branch, `sum` is x. Scratch:
/// column_sums_workspace of 3 sums.
void residual_norm_backward(const ResidualNorm& params, const void* sum, const float* statistics,
                            const ResidualNormGradients& gradients, void* workspace, void* stream);

// ------------------------------------------------------------------------------ bias and GELU

/// out = gelu(x + bias), the exact one; `bias` may be null.
void bias_gelu_forward(DType dtype, std::int64_t rows, std::int64_t width, const void* x,
                       const void* bias, void* out, void* stream);

/// dx, and dbias as its column sums; scratch: column_sums_workspace of 1 sum.
void bias_gelu_backward(DType dtype, std::int64_t rows, std::int64_t width, const void* x,
                        const void* bias, const void* dout, void* dx, void* dbias, void* workspace,
                        void* stream);

/// out (width) = the sums of the columns of x; scratch: column_sums_workspace of 1 sum.
void column_sums(DType dtype, std::int64_t rows, std::int64_t width, const void* x, void* out,
                 void* workspace, void* stream);

// ------------------------------------------------------------------------------ linear layers

/// Products of bfloat16 matrices with what follows them, or several at once. Only where kernels run
/// as sm_90a code. This says whether such a product of `rows` rows is served and worth it: `depth`
/// numbers are multiplied for each of a row's `width` results, both of whole 16 bytes.
bool linear_serves(std::int64_t rows, std::int64_t depth, std::int64_t width);

/// out = gelu(x · weightᵀ + bias), and the derivative there.
struct LinearGelu {
  std::int64_t rows = 0;
  std::int64_t inputs = 0;   ///< the depth
  std::int64_t outputs = 0;  ///< the width
  const void* x = nullptr;
  const void* weight = nullptr;  ///< (outputs, inputs)
  const void* bias = nullptr;    ///< (outputs) or null
  void* out = nullptr;
  void* derivative = nullptr;  ///< as `out`; null: not wanted
};
void linear_gelu(const LinearGelu& params, void* stream);

/// What comes back through a linear layer and the GELU before it:
/// dx = (dy · weight) · derivative, element by element, and dbias as its column sums.
struct LinearGeluGradient {
  std::int64_t rows = 0;
  std::int64_t inputs = 0;   ///< the width
  std::int64_t outputs = 0;  ///< the depth
  const void* dy = nullptr;
  const void* weight = nullptr;  ///< (outputs, inputs)
  const void* derivative = nullptr;
  void* dx = nullptr;
  void* dbias = nullptr;      ///< (inputs)
  void* workspace = nullptr;  ///< column_sums_workspace of 1 sum
};
void linear_gelu_backward(const LinearGeluGradient& params, void* stream);

/// out (outputs, inputs) = dyᵀ · x.
struct WeightGradient {
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  const void* dy = nullptr;
  const void* x = nullptr;
  void* out = nullptr;
};
/// Whether such gradients are served, and are worth waiting for others: alone they fill a GPU
/// badly.
bool weight_gradient_serves(std::int64_t rows, std::int64_t outputs, std::int64_t inputs);
/// Whether these fill the current GPU as well as any more would.
bool weight_gradients_suffice(const WeightGradient* gradients, std::int64_t count);
void weight_gradients(const WeightGradient* gradients, std::int64_t count, void* stream);

// ------------------------------------------------------------------------------ cross entropy

/// loss = −scale · Σ targets · log softmax(logits), summed over the images, and its derivative.
void cross_entropy(DType dtype, std::int64_t images, std::int64_t classes, const void* logits,
                   const float* targets, float scale, float* loss, void* dlogits, void* stream);

// -------------------------------------------------------------------------- rotary positions

/// By how much neighbouring channels (a, b), pair t of a patch's head, turn:
/// (a cos − b sin, a sin + b cos). Prefix tokens do not.
struct Rotation {
  enum class Angles : std::uint8_t {
    raster,  ///< number of the patch · 10000^(−t/pairs)
    axial,   ///< x · 100^(−t/(pairs/2)), for the second half of the pairs y instead of x
    mixed,   ///< x · fx[t] + y · fy[t], of each head
  };
  Angles angles = Angles::raster;
  const float* fx = nullptr;  ///< (heads, head_size/2), where mixed
  const float* fy = nullptr;
};

/// Larger heads are refused by rotary_*.
inline constexpr std::int64_t kWidestTurnedHead = 256;

/// q, k and v, whose rows are whole aligned groups of four elements.
struct RotaryHeads {
  ConstView q, k, v;
};
struct TurnedHeads {
  View q, k, v;
};
/// q and k turned, and v copied, so that they can lie side by side.
void rotary_forward(const Shape& shape, DType dtype, const Rotation& rotation,
                    const RotaryHeads& heads, const TurnedHeads& turned, void* stream);

struct RotaryGradients {
  View dq, dk;           ///< of the turned ones on the way in, of the given ones on the way out
  ConstView q, k;        ///< the turned ones; only for dfx and dfy
  float* dfx = nullptr;  ///< (heads, head_size/2), where mixed; null, both: not wanted
  float* dfy = nullptr;
};
/// Without dfx and dfy no scratch is needed.
std::size_t rotary_workspace(const Shape& shape);
void rotary_backward(const Shape& shape, DType dtype, const Rotation& rotation,
                     const RotaryGradients& gradients, void* workspace, void* stream);

// --------------------------------------------------------------------------------- optimiser

/// The gradient of one parameter and where it belongs in the flat gradient.
struct GradientPiece {
  const void* data = nullptr;
  std::int64_t offset = 0;
  std::int64_t count = 0;
  bool wide = true;  ///< float32; otherwise bfloat16
};

/// flat[offset …] = the piece, or += with `add`.
void gather_gradients(const GradientPiece* pieces, std::int64_t count, float* flat, bool add,
                      void* stream);

/// norm[0] = ‖values‖ and norm[1] = the factor that makes it no longer than `largest` (0: any).
std::size_t norm_workspace(std::int64_t count);
void clipping_norm(const float* values, std::int64_t count, float largest, float* norm,
                   void* workspace, void* stream);

/// Adam over flat float32 weights, as train/adam_update.h says it, with all that follows from new
/// weights in the same pass.
struct AdamPass {
  std::int64_t count = 0;
  std::int64_t decayed = 0;  ///< leading elements that decay
  std::int64_t rounded = 0;  ///< leading elements that have a bfloat16 copy
  float beta1 = 0, beta2 = 0, epsilon = 0;
  float gradient_decay = 0;  ///< factor on a decayed weight that joins its gradient
  float* weights = nullptr;
  float* mean = nullptr;
  float* square = nullptr;
  float* average = nullptr;  ///< null: none is kept
  void* copy = nullptr;      ///< (rounded) bfloat16 or null
  const float* gradients = nullptr;
  const float* gradient_scale = nullptr;  ///< 1 number
  /// 4 numbers of this step: step size, square scale, what decay leaves of a weight, and the new
  /// weights' share in the average.
  const float* numbers = nullptr;
};
void adam_pass(const AdamPass& pass, void* stream);

// ------------------------------------------------------------------------------ augmentation

/// One operation on an image. What `value` holds is said in augment.cu.
struct PlannedOperation {
  enum Kind : std::int32_t {
    none,
    move,
    brightness,
    color,
    contrast,
    sharpness,
    posterize,
    solarize,
    auto_contrast,
    equalize,
  };
  std::int32_t kind = none;
  std::int32_t value[6] = {};
};

/// What one image of a batch becomes. Boxes are top, left, bottom, right; ends excluded.
struct PlannedImage {
  std::int64_t source = 0;  ///< which image of the data set
  std::int32_t top = 0, left = 0;
  std::int32_t flip = 0;
  std::int32_t partner = 0;  ///< which image of the batch it is mixed with
  std::int32_t erased[4] = {};
  std::int32_t box[4] = {};  ///< taken whole from the partner
  float share_of_pixels = 1;
  float share_of_targets = 1;
};

struct AugmentPass {
  std::int64_t images = 0;
  std::int64_t classes = 0;
  std::int32_t channels = 0, height = 0, width = 0;
  std::int32_t padding = 0;
  std::int32_t operations = 0;  ///< an image
  bool mixes = false;
  float target = 1, other_target = 0;       ///< smoothed: of the image's class, of the others
  float mean[4] = {}, factor[4] = {};       ///< (byte − mean) · factor, a channel
  const std::uint8_t* data = nullptr;       ///< (data set, channels, height, width)
  const std::int64_t* labels = nullptr;     ///< (data set)
  const PlannedImage* plan = nullptr;       ///< (images), on the device
  const PlannedOperation* calls = nullptr;  ///< (images, operations), on the device
  float* scratch = nullptr;                 ///< as `out`; only where it mixes
  float* out = nullptr;                     ///< (images, channels, height, width)
  float* targets = nullptr;                 ///< (images, classes)
};

/// Whether images of this size fit.
bool augment_fits(std::int64_t channels, std::int64_t height, std::int64_t width);
void augment_pass(const AugmentPass& pass, void* stream);

}  // namespace sape2::kernels::cuda
