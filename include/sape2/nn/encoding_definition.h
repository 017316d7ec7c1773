#pragma once

#include "sape2/nn/encoding_spec.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sape2::nn {

enum class OptionKind { choice, number, integer };

/// One option of an encoding, as help and `sape2 info` show it.
struct EncodingOption {
  std::string name = {};
  OptionKind kind = OptionKind::choice;
  /// What it does, in one line.
  std::string description = {};
  /// The valid values of a choice.
  std::vector<std::string> choices = {};
  /// The default as it would be written; nothing if it depends on the model.
  std::optional<std::string> default_value = {};
  /// What stands for the default in help if it depends on the model, such as `1/√d`.
  std::string default_text = {};
  /// The smallest and largest integer accepted.
  int64_t minimum = 1;
  int64_t maximum = 65536;
};

/// What an encoding has to know of the model it serves; the grid is the one trained at.
struct EncodingShape {
  int64_t width = 0;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t prefix = 0;

  int64_t head_size() const { return width / heads; }
  int64_t tokens() const { return prefix + rows * cols; }
  /// The same model on another grid.
  EncodingShape at_grid(int64_t its_rows, int64_t its_cols) const {
    return {width, heads, its_rows, its_cols, prefix};
  }
};

/// How an encoding begins without any effect and learns from there, in a model that was trained
/// without it.
struct SilentStart {
  EncodingSpec encoding;            ///< as asked for, or with an option more that this takes
  std::vector<std::string> zeroed;  ///< its parameters that start at 0, by their last names
};

/// What the software says of one encoding. What an encoding computes is in src/nn/encodings, and in
/// src/infer/encodings without LibTorch.
struct EncodingDefinition {
  std::string name;
  /// One line for help and `sape2 info`.
  std::string summary;
  std::vector<EncodingOption> options = {};
  /// Throws Error if options contradict each other; sees them as written, defaults included.
  void (*check_options)(const EncodingSpec&) = nullptr;
  /// Throws Error if the encoding cannot serve such a model.
  void (*check_shape)(const EncodingSpec&, const EncodingShape&) = nullptr;
  /// Nothing if there is none with such options; null: the encoding never has a silent start.
  std::optional<SilentStart> (*silent_start)(const EncodingSpec&) = nullptr;

  /// The option of that name, or null.
  const EncodingOption* find_option(std::string_view option) const;
};

/// Every registered encoding, in the order in which help lists them.
const std::vector<EncodingDefinition>& encoding_definitions();

/// The definition of a registered name; throws Error with the nearest valid name otherwise.
const EncodingDefinition& encoding_definition(std::string_view name);

/// The silent start of an encoding, `+ape` included; nothing if it has none.
std::optional<SilentStart> silent_start(const EncodingSpec& spec);

/// Throws Error with one sentence if `spec` cannot serve a model of this shape.
void check_encoding(const EncodingSpec& spec, const EncodingShape& shape);

}  // namespace sape2::nn
