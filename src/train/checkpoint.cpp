#include "train/checkpoint.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/io/checksum.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <charconv>

namespace sape2::train {
namespace {

namespace fs = std::filesystem;
const std::string kFormatKey = "sape2_checkpoint";
const std::string kFormat = "1";
const std::string kRunKey = "run";
const std::string kOldChecksumKey = "checksum";
const std::string kBestKey = "best_top1";  // named when there were classifiers alone

// Shortest texts that read back as the same number.
template <typename T>
std::string text_of(T value) {
  char buffer[64];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

template <typename T>
void read_number(const io::Metadata& metadata, const std::string& key, T& value) {
  const auto found = metadata.find(key);
  const std::string text = found == metadata.end() ? "" : found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error("its " + key + " is " + in_quotes(text) + ", expected a number");
  }
}

io::Metadata metadata_of(const Progress& progress, const std::string& fingerprint) {
  return {{kFormatKey, kFormat},
          {kRunKey, fingerprint},
          {"step", text_of(progress.step)},
          {"epoch_loss", text_of(progress.epoch_loss)},
          {"interval_loss", text_of(progress.interval_loss)},
          {kBestKey, text_of(progress.best)},
          {"seconds", text_of(progress.seconds)}};
}

Progress progress_of(const io::Metadata& metadata) {
  Progress progress;
  read_number(metadata, "step", progress.step);
  read_number(metadata, "epoch_loss", progress.epoch_loss);
  read_number(metadata, "interval_loss", progress.interval_loss);
  read_number(metadata, kBestKey, progress.best);
  read_number(metadata, "seconds", progress.seconds);
  return progress;
}

std::string metadata_value(const io::SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "" : found->second;
}

void verify(const io::SafetensorsFile& file) {
  if (file.metadata().contains(io::kChecksumKey)) return io::verify_checksum(file);
  // Older checkpoints have the same checksum under another key.
  io::Metadata covered = file.metadata();
  covered.erase(kOldChecksumKey);
  if (metadata_value(file, kOldChecksumKey) == io::checksum_of(covered, file.tensors())) return;
  throw DamagedCheckpoint("its checksum does not fit its content, so it was damaged");
}

void check(const io::SafetensorsFile& file, const io::NamedTensors& tensors,
           const std::string& fingerprint) {
  const std::string format = metadata_value(file, kFormatKey);
  if (format.empty()) throw DamagedCheckpoint("it is no checkpoint of a run");
  verify(file);
  if (format != kFormat) {
    throw Error("its format is " + in_quotes(format) + ", expected " + in_quotes(kFormat) +
                ": a newer sape2 may be needed");
  }
  if (metadata_value(file, kRunKey) != fingerprint) {
    throw Error("it belongs to another configuration than the run's config.json holds");
  }
  for (const auto& [name, tensor] : tensors) {
    const io::TensorView* view = file.find(name);
    if (view == nullptr || view->dtype != io::Dtype::f32 || view->shape != tensor.sizes().vec()) {
      throw Error("its tensor " + in_quotes(name) + " is missing or of another shape");
    }
  }
  if (file.tensors().size() != tensors.size()) throw Error("it has more tensors than expected");
}

}  // namespace

void write_checkpoint(const fs::path& path, const io::NamedTensors& tensors,
                      const Progress& progress, const std::string& fingerprint) {
  io::save_tensors(path, tensors, metadata_of(progress, fingerprint));
}

Progress read_checkpoint(const fs::path& path, const io::NamedTensors& tensors,
                         const std::string& fingerprint) {
  const auto refusal = [&](const Error& reason) {
    return "checkpoint " + in_quotes(path) + " is refused: " + reason.what();
  };
  try {
    const auto file = io::SafetensorsFile::open(path);
    check(file, tensors, fingerprint);
    const Progress progress = progress_of(file.metadata());
    const at::NoGradGuard no_grad;
    for (auto& [name, tensor] : tensors) tensor.copy_(io::to_tensor(file, file.at(name)));
    return progress;
  } catch (const DamagedCheckpoint& error) {
    throw DamagedCheckpoint(refusal(error));
  } catch (const io::FormatError& error) {
    throw DamagedCheckpoint(refusal(error));
  } catch (const Error& error) {
    throw Error(refusal(error));
  }
}

}  // namespace sape2::train
