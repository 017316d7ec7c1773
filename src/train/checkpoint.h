#pragma once

#include "sape2/base/error.h"
#include "sape2/io/tensor_file.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace sape2::train {

/// How far a run has come, beside its tensors. Random draws depend on the seed and the step alone,
/// so these two are the whole random state.
struct Progress {
  int64_t step = 0;          ///< optimiser steps done
  double epoch_loss = 0;     ///< sum over the steps of the current epoch
  double interval_loss = 0;  ///< sum over the steps since the last line of the log
  double best = -1;          ///< main figure on the test images; -1: not evaluated yet
  double seconds = 0;        ///< spent in all sessions

  bool operator==(const Progress&) const = default;
};

/// Writes a safetensors file whose metadata holds the progress, the run's fingerprint and a
/// checksum over all of it. The file appears under its name only when it is complete and on the
/// disk.
void write_checkpoint(const std::filesystem::path& path, const io::NamedTensors& tensors,
                      const Progress& progress, const std::string& fingerprint);

/// A checkpoint whose bytes are not those that were written: nobody can use it.
class DamagedCheckpoint : public Error {
 public:
  using Error::Error;
};

/// Reads one into `tensors`, which give the names and shapes expected. Throws DamagedCheckpoint if
/// the file is torn or was changed, and another Error if it cannot be read or is a sound checkpoint
/// of another configuration; nothing is changed then.
Progress read_checkpoint(const std::filesystem::path& path, const io::NamedTensors& tensors,
                         const std::string& fingerprint);

}  // namespace sape2::train
