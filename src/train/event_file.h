#pragma once

#include "train/append_file.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sape2::train {

using Scalars = std::vector<std::pair<std::string, double>>;

/// One record of a TFRecord file: its length and its bytes, each with a masked CRC-32C.
std::string tf_record(std::string_view bytes);

/// TensorBoard's `Event` message, written by hand: the first of a file, the start of a session at a
/// step (TensorBoard then forgets what earlier files say of later steps), and scalars of a step.
std::string version_event(double wall_time);
std::string session_start_event(double wall_time, int64_t step);
std::string scalars_event(double wall_time, int64_t step, const Scalars& scalars);

/// A file of TensorBoard events; each session of a run adds its own.
class EventFile {
 public:
  EventFile(const std::filesystem::path& folder, int64_t first_step);

  void add(int64_t step, const Scalars& scalars);

 private:
  AppendFile file_;
};

}  // namespace sape2::train
