#pragma once

#include "sape2/kernels/attention.h"

#include <cmath>
#include <cstddef>
#include <vector>

/// The formulas written plainly, one number after another. With T = double it is what the kernels
/// are compared with; with T = float, the plain low-precision formula whose error they may double.
namespace sape2::kernels::testing {

template <typename T>
using Array = std::vector<T>;

/// A problem in contiguous (images, heads, tokens, head_size) arrays.
template <typename T>
struct Problem {
  Shape shape;
  double scale = 1.0;
  bool biased = true;  ///< false: plain attention
  bool inside = true;
  Source source = Source::k;
  Span span = Span::suffix;
  Form form = Form::distance;
  int positions = 2;
  bool tables_per_head = false;
  Array<T> q, k, v, dout;
  Array<T> q_x, q_y, k_x, k_y;  // tables
  Array<T> gate_scale, gate_offset, gain;

  int sets() const { return source == Source::qk ? 2 : 1; }
  bool from_q(int set) const { return source == Source::q || (source == Source::qk && set == 0); }
};

template <typename To, typename From>
Array<To> cast(const Array<From>& from) {
  return Array<To>(from.begin(), from.end());
}

template <typename To, typename From>
Problem<To> cast(const Problem<From>& p) {
  return {p.shape,
          p.scale,
          p.biased,
          p.inside,
          p.source,
          p.span,
          p.form,
          p.positions,
          p.tables_per_head,
          cast<To>(p.q),
          cast<To>(p.k),
          cast<To>(p.v),
          cast<To>(p.dout),
          cast<To>(p.q_x),
          cast<To>(p.q_y),
          cast<To>(p.k_x),
          cast<To>(p.k_y),
          cast<To>(p.gate_scale),
          cast<To>(p.gate_offset),
          cast<To>(p.gain)};
}

template <typename T>
struct Result {
  Array<T> out, softmax;
  Array<T> x, y;  // (sets, images, heads, patches, cols or rows)
  Array<T> dq, dk, dv, dx, dy;
  Array<T> dq_x, dq_y, dk_x, dk_y;
  Array<T> dgate_scale, dgate_offset, dgain;
};

/// Stage 1 along one axis for one patch: everything a backward pass needs again.
template <typename T>
struct LineOfPatch {
  Array<T> scores, gates, positions;
  Array<bool> clamped;
};

template <typename T>
class Reference {
 public:
  explicit Reference(const Problem<T>& problem) : p_(problem) {
    const Shape& s = p_.shape;
    d_ = static_cast<int>(s.head_size);
    rows_ = static_cast<int>(s.rows);
    cols_ = static_cast<int>(s.cols);
    prefix_ = static_cast<int>(s.prefix);
    patches_ = rows_ * cols_;
    tokens_ = prefix_ + patches_;
    const std::size_t heads = static_cast<std::size_t>(s.images * s.heads);
    const std::size_t all = heads * tokens_ * d_;
    r_.out.assign(all, 0), r_.dq.assign(all, 0), r_.dk.assign(all, 0), r_.dv.assign(all, 0);
    r_.softmax.assign(2 * heads * tokens_, 0);
    r_.x.assign(p_.sets() * heads * patches_ * cols_, 0);
    r_.y.assign(p_.sets() * heads * patches_ * rows_, 0);
    r_.dx.assign(r_.x.size(), 0), r_.dy.assign(r_.y.size(), 0);
    r_.dq_x.assign(p_.q_x.size(), 0), r_.dq_y.assign(p_.q_y.size(), 0);
    r_.dk_x.assign(p_.k_x.size(), 0), r_.dk_y.assign(p_.k_y.size(), 0);
    r_.dgate_scale.assign(s.heads, 0), r_.dgate_offset.assign(s.heads, 0);
    r_.dgain.assign(s.heads, 0);
  }

  /// Both stages, forward and backward.
  Result<T> run() {
    for (std::int64_t b = 0; b < p_.shape.images; ++b) {
      for (std::int64_t h = 0; h < p_.shape.heads; ++h) {
        select(b, h);
        if (p_.biased) vectors();
        attention();
        if (p_.biased) vectors_gradient();
      }
    }
    return r_;
  }

  /// Stage 2 alone, on given vectors.
  Result<T> run_stage2(const Array<T>& x, const Array<T>& y) {
    r_.x = x, r_.y = y;
    for (std::int64_t b = 0; b < p_.shape.images; ++b) {
      for (std::int64_t h = 0; h < p_.shape.heads; ++h) {
        select(b, h);
        attention();
      }
    }
    return r_;
  }

  /// Stage 1 alone, with the gradients of its vectors.
  Result<T> run_stage1(const Array<T>& dx, const Array<T>& dy) {
    r_.dx = dx, r_.dy = dy;
    for (std::int64_t b = 0; b < p_.shape.images; ++b) {
      for (std::int64_t h = 0; h < p_.shape.heads; ++h) {
        select(b, h);
        vectors();
        vectors_gradient();
      }
    }
    return r_;
  }

 private:
  void select(std::int64_t image, std::int64_t head) {
    head_ = head;
    base_ = static_cast<std::size_t>((image * p_.shape.heads + head) * tokens_) * d_;
    first_token_ = static_cast<std::size_t>((image * p_.shape.heads + head) * tokens_);
    first_patch_ = static_cast<std::size_t>((image * p_.shape.heads + head) * patches_);
  }

  const T* row(const Array<T>& a, int token) const { return a.data() + base_ + token * d_; }
  T* row(Array<T>& a, int token) const { return a.data() + base_ + token * d_; }
  T dot(const T* a, const T* b) const {
    T sum = 0;
    for (int c = 0; c < d_; ++c) sum += a[c] * b[c];
    return sum;
  }
  std::size_t vector_at(int set, int axis, int patch) const {
    const std::size_t all = static_cast<std::size_t>(p_.shape.images * p_.shape.heads) * patches_;
    return (set * all + first_patch_ + patch) * (axis == 0 ? cols_ : rows_);
  }
  int length(int axis) const { return axis == 0 ? cols_ : rows_; }
  int place(int axis, int patch) const { return axis == 0 ? patch % cols_ : patch / cols_; }
  int member(int axis, int patch, int j) const {
    return axis == 0 ? patch / cols_ * cols_ + j : j * cols_ + patch % cols_;
  }
  std::size_t table_at(int row) const {
    return ((p_.tables_per_head ? head_ * p_.positions : 0) + row) * static_cast<std::size_t>(d_);
  }
  const Array<T>& table(int set, int axis) const {
    return p_.from_q(set) ? (axis == 0 ? p_.q_x : p_.q_y) : (axis == 0 ? p_.k_x : p_.k_y);
  }
  Array<T>& dtable(int set, int axis) {
    return p_.from_q(set) ? (axis == 0 ? r_.dq_x : r_.dq_y) : (axis == 0 ? r_.dk_x : r_.dk_y);
  }

  LineOfPatch<T> line(int axis, int i) const {
    const int n = length(axis);
    LineOfPatch<T> l{Array<T>(n), Array<T>(n), Array<T>(n), Array<bool>(n)};
    for (int j = 0; j < n; ++j) {
      l.scores[j] = dot(row(p_.q, prefix_ + i), row(p_.k, prefix_ + member(axis, i, j)));
      const T t = p_.gate_scale[head_] * l.scores[j] + p_.gate_offset[head_];
      l.gates[j] = T(1) / (T(1) + std::exp(-t));
    }
    const int at = place(axis, i);
    for (int m = 0; m < n; ++m) {
      T sum = 0;
      if (p_.span == Span::suffix) {
        for (int j = n - 1; j >= m; --j) sum += l.gates[j];
      } else {
        for (int j = at + 1; j <= m; ++j) sum += l.gates[j];
        for (int j = at - 1; j >= m; --j) sum -= l.gates[j];
      }
      const T most = p_.span == Span::suffix ? p_.positions - 1 : (p_.positions - 1) / 2;
      l.clamped[m] = sum > most || sum < -most;
      l.positions[m] = sum > most ? most : (sum < -most ? -most : sum);
    }
    return l;
  }

  int offset() const { return p_.span == Span::suffix ? 0 : (p_.positions - 1) / 2; }

  void vectors() {
    for (int set = 0; set < p_.sets(); ++set) {
      for (int axis = 0; axis < 2; ++axis) {
        Array<T>& target = axis == 0 ? r_.x : r_.y;
        const T* e = table(set, axis).data();
        for (int i = 0; i < patches_; ++i) {
          const LineOfPatch<T> l = line(axis, i);
          const T* content = row(p_.from_q(set) ? p_.q : p_.k, prefix_ + i);
          for (int m = 0; m < length(axis); ++m) {
            const T p = l.positions[m];
            const int below = static_cast<int>(std::floor(p)) + offset();
            const int above = static_cast<int>(std::ceil(p)) + offset();
            const T w = p - std::floor(p);
            target[vector_at(set, axis, i) + m] =
                w * dot(content, e + table_at(above)) + (1 - w) * dot(content, e + table_at(below));
          }
        }
      }
    }
  }

  void vectors_gradient() {
    for (int axis = 0; axis < 2; ++axis) {
      const int n = length(axis);
      for (int i = 0; i < patches_; ++i) {
        const LineOfPatch<T> l = line(axis, i);
        Array<T> dp(n, 0);
        for (int set = 0; set < p_.sets(); ++set) {
          const T* content = row(p_.from_q(set) ? p_.q : p_.k, prefix_ + i);
          T* dcontent = row(p_.from_q(set) ? r_.dq : r_.dk, prefix_ + i);
          const T* e = table(set, axis).data();
          T* de = dtable(set, axis).data();
          const T* du = (axis == 0 ? r_.dx : r_.dy).data() + vector_at(set, axis, i);
          for (int m = 0; m < n; ++m) {
            const T p = l.positions[m];
            const std::size_t below = table_at(static_cast<int>(std::floor(p)) + offset());
            const std::size_t above = table_at(static_cast<int>(std::ceil(p)) + offset());
            const T w = p - std::floor(p);
            for (int c = 0; c < d_; ++c) {
              de[above + c] += w * du[m] * content[c];
              de[below + c] += (1 - w) * du[m] * content[c];
              dcontent[c] += du[m] * (w * e[above + c] + (1 - w) * e[below + c]);
            }
            if (!l.clamped[m]) dp[m] += du[m] * (dot(content, e + above) - dot(content, e + below));
          }
        }
        const int at = place(axis, i);
        for (int j = 0; j < n; ++j) {
          T dg = 0;
          for (int m = 0; m < n; ++m) {
            if (p_.span == Span::suffix) {
              if (m <= j) dg += dp[m];
            } else {
              if (j > at && m >= j) dg += dp[m];
              if (j < at && m <= j) dg -= dp[m];
            }
          }
          const T dt = dg * l.gates[j] * (1 - l.gates[j]);
          r_.dgate_scale[head_] += dt * l.scores[j];
          r_.dgate_offset[head_] += dt;
          const int n_token = prefix_ + member(axis, i, j);
          for (int c = 0; c < d_; ++c) {
            row(r_.dq, prefix_ + i)[c] += p_.gate_scale[head_] * dt * row(p_.k, n_token)[c];
            row(r_.dk, n_token)[c] += p_.gate_scale[head_] * dt * row(p_.q, prefix_ + i)[c];
          }
        }
      }
    }
  }

  T distance(int set, int axis, int i, int n) const {
    const Array<T>& u = axis == 0 ? r_.x : r_.y;
    const T* a = u.data() + vector_at(set, axis, i);
    const T* b = u.data() + vector_at(set, axis, n);
    T sum = 0;
    for (int c = 0; c < length(axis); ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
    return std::sqrt(sum);
  }

  T bias(int i, int n) const {
    T sum = 0;
    for (int set = 0; set < p_.sets(); ++set) {
      for (int axis = 0; axis < 2; ++axis) {
        const Array<T>& u = axis == 0 ? r_.x : r_.y;
        sum += p_.form == Form::distance ? distance(set, axis, i, n)
                                         : u[vector_at(set, axis, i) + place(axis, n)];
      }
    }
    return sum;
  }

  void bias_gradient(int i, int n, T db) {
    for (int set = 0; set < p_.sets(); ++set) {
      for (int axis = 0; axis < 2; ++axis) {
        Array<T>& du = axis == 0 ? r_.dx : r_.dy;
        if (p_.form == Form::direct) {
          du[vector_at(set, axis, i) + place(axis, n)] += db;
          continue;
        }
        const T r = distance(set, axis, i, n);
        if (r == 0) continue;
        const Array<T>& u = axis == 0 ? r_.x : r_.y;
        for (int c = 0; c < length(axis); ++c) {
          const std::size_t a = vector_at(set, axis, i) + c;
          const std::size_t b = vector_at(set, axis, n) + c;
          const T part = db / r * (u[a] - u[b]);
          du[a] += part;
          du[b] -= part;
        }
      }
    }
  }

  void attention() {
    const T scale = static_cast<T>(p_.scale);
    const T gain = p_.biased ? p_.gain[head_] : T(0);
    for (int i = 0; i < tokens_; ++i) {
      Array<T> logits(tokens_), b(tokens_, 0), a(tokens_);
      T top = -INFINITY;
      for (int n = 0; n < tokens_; ++n) {
        if (p_.biased && i >= prefix_ && n >= prefix_) b[n] = bias(i - prefix_, n - prefix_);
        const T s = dot(row(p_.q, i), row(p_.k, n));
        logits[n] = p_.inside ? scale * (s + gain * b[n]) : scale * s + gain * b[n];
        if (logits[n] > top) top = logits[n];
      }
      T sum = 0;
      for (int n = 0; n < tokens_; ++n) sum += a[n] = std::exp(logits[n] - top);
      r_.softmax[2 * (first_token_ + i)] = top;
      r_.softmax[2 * (first_token_ + i) + 1] = sum;
      for (int n = 0; n < tokens_; ++n) {
        a[n] /= sum;
        for (int c = 0; c < d_; ++c) row(r_.out, i)[c] += a[n] * row(p_.v, n)[c];
      }
      if (p_.dout.empty()) continue;
      const T delta = dot(row(p_.dout, i), row(r_.out, i));
      for (int n = 0; n < tokens_; ++n) {
        const T g = a[n] * (dot(row(p_.dout, i), row(p_.v, n)) - delta);
        for (int c = 0; c < d_; ++c) {
          row(r_.dv, n)[c] += a[n] * row(p_.dout, i)[c];
          row(r_.dq, i)[c] += scale * g * row(p_.k, n)[c];
          row(r_.dk, n)[c] += scale * g * row(p_.q, i)[c];
        }
        if (p_.biased && i >= prefix_ && n >= prefix_) {
          r_.dgain[head_] += g * b[n] * (p_.inside ? scale : 1);
          bias_gradient(i - prefix_, n - prefix_, g * gain * (p_.inside ? scale : 1));
        }
      }
    }
  }

  const Problem<T>& p_;
  Result<T> r_;
  int d_, rows_, cols_, prefix_, patches_, tokens_;
  std::int64_t head_ = 0;
  std::size_t base_ = 0, first_token_ = 0, first_patch_ = 0;
};

}  // namespace sape2::kernels::testing
