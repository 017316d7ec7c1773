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
  const int columns = forward_columns(s.element_bytes, s.head_size, s.form);
  return kSharedAlignment + tile_bytes(s.element_bytes, kRowTile, s.head_size) +
         4 * tile_bytes(s.element_bytes, columns, s.head_size) +
         column_token_bytes(s.form == BiasForm::direct, columns) + distance_bias_bytes(s, columns);
}

int backward_smem_bytes(const SmemSizes& s, bool keys_along_rows) {
  constexpr int kColumns = kBackwardColumns;
  const bool direct = s.form == BiasForm::direct;
  return kSharedAlignment + 2 * tile_bytes(s.element_bytes, kRowTile, s.head_size) +
         4 * tile_bytes(s.element_bytes, kColumns, s.head_size) + 6 * kColumns * 4 +
         column_token_bytes(direct && !keys_along_rows, kColumns) +
         distance_bias_bytes(s, kColumns) +
         (direct && keys_along_rows ? DirectColumnsSmem::bytes(kColumns) : 0);
}

}  // namespace sape2::kernels::cuda::sm80
