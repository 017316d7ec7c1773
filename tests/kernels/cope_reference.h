#pragma once

#include "reference.h"

/// Attention with contextual positions, written plainly.
namespace sape2::kernels::testing {

template <typename T>
struct CopeResult {
  Array<T> out, dq, dk, dv, dtable;
};

/// The problem's k_x is the table; gate_scale[0] the gates' scale.
template <typename T>
CopeResult<T> cope_reference(const Problem<T>& p) {
  const int d = static_cast<int>(p.shape.head_size);
  const int tokens = static_cast<int>(p.shape.tokens());
  const T scale = static_cast<T>(p.scale);
  const T ratio = p.inside ? scale : T(1);
  const T gate_scale = p.gate_scale[0];
  const Array<T> zeros(p.q.size(), 0);
  CopeResult<T> r{zeros, zeros, zeros, zeros, Array<T>(p.k_x.size(), 0)};
  const auto dot = [d](const T* a, const T* b) {
    T sum = 0;
    for (int c = 0; c < d; ++c) sum += a[c] * b[c];
    return sum;
  };
  for (std::int64_t head = 0; head < p.shape.images * p.shape.heads; ++head) {
    const std::size_t base = static_cast<std::size_t>(head * tokens * d);
    for (int i = 0; i < tokens; ++i) {
      const std::size_t qi = base + i * d;
      Array<T> s(tokens), g(tokens), position(tokens), b(tokens), a(tokens);
      Array<bool> clamped(tokens);
      for (int n = 0; n < tokens; ++n) {
        s[n] = dot(&p.q[qi], &p.k[base + n * d]);
        g[n] = T(1) / (T(1) + std::exp(-gate_scale * s[n]));
      }
      T sum = 0;
      for (int n = tokens - 1; n >= 0; --n) {
        sum += g[n];
        clamped[n] = sum > p.positions - 1;
        position[n] = clamped[n] ? T(p.positions - 1) : sum;
      }
      T top = -INFINITY, total = 0;
      for (int n = 0; n < tokens; ++n) {
        const T w = position[n] - std::floor(position[n]);
        b[n] = w * dot(&p.q[qi], &p.k_x[static_cast<int>(std::ceil(position[n])) * d]) +
               (1 - w) * dot(&p.q[qi], &p.k_x[static_cast<int>(std::floor(position[n])) * d]);
        a[n] = scale * s[n] + ratio * b[n];
        top = std::max(top, a[n]);
      }
      for (int n = 0; n < tokens; ++n) total += a[n] = std::exp(a[n] - top);
      for (int n = 0; n < tokens; ++n) {
        a[n] /= total;
        for (int c = 0; c < d; ++c) r.out[qi + c] += a[n] * p.v[base + n * d + c];
      }
      const T delta = dot(&p.dout[qi], &r.out[qi]);
      T dp = 0;
      for (int n = 0; n < tokens; ++n) {
        const std::size_t kn = base + n * d;
        const T logit = a[n] * (dot(&p.dout[qi], &p.v[kn]) - delta);
        const T db = ratio * logit;
        const int above = static_cast<int>(std::ceil(position[n])) * d;
        const int below = static_cast<int>(std::floor(position[n])) * d;
        const T w = position[n] - std::floor(position[n]);
        if (!clamped[n]) dp += db * (dot(&p.q[qi], &p.k_x[above]) - dot(&p.q[qi], &p.k_x[below]));
        const T ds = scale * logit + gate_scale * dp * g[n] * (1 - g[n]);
        for (int c = 0; c < d; ++c) {
          r.dv[kn + c] += a[n] * p.dout[qi + c];
          r.dq[qi + c] +=
              ds * p.k[kn + c] + db * (w * p.k_x[above + c] + (1 - w) * p.k_x[below + c]);
          r.dk[kn + c] += ds * p.q[qi + c];
          r.dtable[above + c] += db * w * p.q[qi + c];
          r.dtable[below + c] += db * (1 - w) * p.q[qi + c];
        }
      }
    }
  }
  return r;
}

}  // namespace sape2::kernels::testing
