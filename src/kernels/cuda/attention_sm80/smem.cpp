#include "kernels/cuda/attention_sm80/smem.h"

namespace sape2::kernels::cuda::sm80 {
namespace {

int distance_bias_bytes(const SmemSizes& s, int columns) {
  if (!is_distance(s.form)) return 0;
  const int sets = s.form == BiasForm::distance_pair ? 2 : 1;
  return s.element_bytes == 4 ? distance_bytes<4>(sets, columns, s.width_x, s.width_y)
                              : distance_bytes<2>(sets, columns, s.width_x, s.width_y);
}

}  // namespace

int forward_smem_bytes(const SmemSizes& s) {
  return kSharedAlignment + forward_tiles_bytes(s.element_bytes, s.head_size, s.form) +
         distance_bias_bytes(s, forward_columns(s.element_bytes, s.head_size, s.form));
}

int backward_smem_bytes(const SmemSizes& s, bool keys_along_rows) {
  const bool direct_columns = s.form == BiasForm::direct && keys_along_rows;
  return kSharedAlignment +
         backward_tiles_bytes(s.element_bytes, s.head_size, s.form, keys_along_rows) +
         distance_bias_bytes(s, kBackwardColumns) +
         (direct_columns ? DirectColumnsSmem::bytes(kBackwardColumns) : 0);
}

}  // namespace sape2::kernels::cuda::sm80
