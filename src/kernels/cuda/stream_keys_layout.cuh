#pragma once

#include "kernels/cuda/stream_tiles.cuh"

namespace sape2::kernels::cuda {

/// Places in shared memory, in bytes from its beginning. Of a tile of queries dout is needed later
/// than the rest and has slots of its own. `Short`: rows of up to 32 keys, whose vectors leave room
/// for one more tile of q, and a ratio that is a number of the type (ShortKeysBias).
template <BiasForm Form, bool Short>
struct StreamKeysLayout {
  static constexpr bool kDirect = Form == BiasForm::direct;
  static constexpr int kSlots = kDirect && !Short ? 2 : 3, kVectorSlots = 2, kDoutSlots = 2;
  // Of y the eight grid rows among which the block's are, or as many numbers as of x.
  static constexpr int kXBytes = !kDirect ? 0 : kRowTile * (Short ? 64 : 128);
  static constexpr int kYBytes = !kDirect ? 0 : kRowTile * (Short ? 64 : 16);
  static constexpr int kNoteBytes = kRowTile * 8;  // pairs of log2(Σ e^logit) and dout · out
  static constexpr int kCopied = kStreamTile + kXBytes + kYBytes + kNoteBytes;  // all but dout
  static constexpr int kK = 0, kV = kK + kStreamTile;
  static constexpr int kQ = kV + kStreamTile, kDout = kQ + kSlots * kStreamTile;
  static constexpr int kX = kDout + kDoutSlots * kStreamTile, kY = kX + kVectorSlots * kXBytes;
  static constexpr int kNotes = kY + kVectorSlots * kYBytes;
  static constexpr int kArrived = kNotes + kSlots * kNoteBytes;
  static constexpr int kDoutArrived = kArrived + kSlots * 8;
  static constexpr int kRowsArrived = kDoutArrived + kDoutSlots * 8;
  static constexpr int kBytes = kRowsArrived + 8;
};

}  // namespace sape2::kernels::cuda
