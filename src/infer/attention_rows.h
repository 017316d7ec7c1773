#pragma once

#include "sape2/kernels/cope.h"

#include "infer/encoding.h"

/// What attention is made of, as some patches see it, by the plain formulas: the numbers of
/// src/ops/inspection/inspect.cpp without LibTorch. All are of one image.
namespace sape2::infer {

/// Rows of attention without a bias.
AttentionRows plain_rows(const QueriesAndKeys& tokens, Patches patches);

/// Axis vectors of one image, (sets, heads, patches, cols) and (sets, heads, patches, rows).
struct AxisVectors {
  std::int64_t sets = 1;
  std::vector<float> x, y;
};

/// Rows of attention with a bias that axis vectors make.
AttentionRows biased_rows(const QueriesAndKeys& tokens, Patches patches, const AxisVectors& vectors,
                          kernels::Form form, const kernels::Bias& bias);

/// Adds the gates and soft positions along both axes to such rows.
void add_positions(AttentionRows& rows, const QueriesAndKeys& tokens, Patches patches,
                   const kernels::Encoding& encoding);

/// Rows of CoPE's attention.
AttentionRows cope_rows(const QueriesAndKeys& tokens, Patches patches,
                        const kernels::CopeEncoding& encoding);

}  // namespace sape2::infer
