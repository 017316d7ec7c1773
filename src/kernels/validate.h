#pragma once

#include "sape2/kernels/attention.h"
#include "sape2/kernels/cope.h"
#include "sape2/kernels/vectors.h"

namespace sape2::kernels {

// Each throws Error, in one sentence, where its argument makes no sense.
void check_inputs(const AttentionInputs& inputs);
void check_inputs(const VectorInputs& inputs);
void check_outputs(const AttentionOutputs& outputs);
void check_saved(const AttentionSaved& saved);
void check_bias(const Bias& bias);
void check_vectors(const AxisVectors& vectors);
void check_encoding(const Encoding& encoding);
void check_encoding(const CopeEncoding& encoding);

/// For any other pointer that must be there.
void check_given(const void* pointer, const char* name);

}  // namespace sape2::kernels
