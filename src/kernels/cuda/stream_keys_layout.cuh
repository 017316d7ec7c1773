#pragma once

#include "kernels/cuda/stream_tiles.cuh"

namespace sape2::kernels::cuda {

/// Places in shared memory, in bytes from its beginning. Of a tile of queries dout is needed later
/// than the rest and has slots of its own.
template <BiasForm Form>
struct StreamKeysLayout {
  static constexpr int kSlots = 3, kDoutSlots = 2;
  static constexpr int kVectorBytes = Form == BiasForm::direct ? kRowTile * 16 : 0;  // of x, of y
  static constexpr int kNoteBytes = kRowTile * 8;  // pairs of log2(Σ e^logit) and dout · out
  static constexpr int kCopied = kStreamTile + 2 * kVectorBytes + kNoteBytes;  // all but dout
  static constexpr int kK = 0, kV = kK + kStreamTile;
  static constexpr int kQ = kV + kStreamTile, kDout = kQ + kSlots * kStreamTile;
  static constexpr int kX = kDout + kDoutSlots * kStreamTile, kY = kX + kSlots * kVectorBytes;
  static constexpr int kNotes = kY + kSlots * kVectorBytes;
  static constexpr int kArrived = kNotes + kSlots * kNoteBytes;
  static constexpr int kDoutArrived = kArrived + kSlots * 8;
  static constexpr int kRowsArrived = kDoutArrived + kDoutSlots * 8;
  static constexpr int kBytes = kRowsArrived + 8;
};

}  // namespace sape2::kernels::cuda
