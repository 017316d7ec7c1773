#pragma once

#include "sape2/nn/encoding.h"

#include <c10/util/ArrayRef.h>

#include <string>

/// What Python knows of encodings: the registry that the program has, as JSON.
namespace sape2::python {

/// The shape of a model as operators take it: width, heads, rows, cols, prefix.
nn::EncodingShape shape_of(c10::IntArrayRef numbers);

/// Every encoding with its options: `[{"name", "summary", "options": [{"name", "kind",
/// "description", "choices", "default"}]}]`.
std::string encodings_json();

/// An encoding in a model of that shape: its canonical string, the parts it has (`at_input`,
/// `in_layers`, and `carries`, where one layer hands positions to the next), its `silent_start`
/// (see nn::SilentStart), and the names and sizes of its parameters, those of the model as a whole
/// and those of each layer.
std::string encoding_json(const std::string& encoding, c10::IntArrayRef shape);

}  // namespace sape2::python
