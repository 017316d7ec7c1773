#pragma once

#include "sape2/nn/model_config.h"

namespace sape2::nn {

/// The encoding that a trained model gets where `wanted` is asked for. One that is new to the model
/// takes its silent start (see SilentStart): `sape2-k`, whose distance cannot learn from tables of
/// zeros, gets a learnt gain that starts at 0. Otherwise it is `wanted`.
EncodingSpec retrofitted(const EncodingSpec& trained, const EncodingSpec& wanted);

/// Whether both have the same encoding, `+ape` and such options aside that leave the meaning of its
/// tables as it is: only then are its tensors kept.
bool same_positions(const EncodingSpec& one, const EncodingSpec& other);

/// Throws Error with one sentence if a model cannot start from the weights of another, because
/// it has another depth, width, number of heads or width of the MLP.
void check_retrofit(const ModelConfig& trained, const ModelConfig& wanted);

}  // namespace sape2::nn
