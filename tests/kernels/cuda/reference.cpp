#include "reference.h"

#include <algorithm>
#include <cmath>

namespace sape2::kernels::test {
namespace {

/// One head of one image.
class Head {
 public:
  Head(const Problem& problem, Solution& solution, std::int64_t image, std::int64_t head)
      : p_(problem), s_(solution), head_(head), bh_(image * problem.shape.heads + head) {
    n_ = p_.shape.tokens();
    d_ = p_.shape.head_size;
    patches_ = p_.shape.patches();
    q_ = p_.q.data() + bh_ * n_ * d_;
    k_ = p_.k.data() + bh_ * n_ * d_;
    v_ = p_.v.data() + bh_ * n_ * d_;
  }

  void run() {
    scores_.assign(n_ * n_, 0);
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t j = 0; j < n_; ++j) scores_[i * n_ + j] = dot(q_ + i * d_, k_ + j * d_);
    if (p_.has_bias && p_.has_tables)
      for (int set = 0; set < p_.sets(); ++set)
        for (int axis = 0; axis < 2; ++axis) make_vectors(set, axis);
    attend();
    go_back();
    if (p_.has_bias && p_.has_tables)
      for (int set = 0; set < p_.sets(); ++set)
        for (int axis = 0; axis < 2; ++axis) vectors_back(set, axis);
  }

 private:
  double dot(const double* a, const double* b) const {
    double sum = 0;
    for (std::int64_t c = 0; c < d_; ++c) sum += a[c] * b[c];
    return sum;
  }
  std::int64_t entries(int axis) const { return axis ? p_.shape.rows : p_.shape.cols; }
  std::int64_t x_of(std::int64_t patch) const { return patch % p_.shape.cols; }
  std::int64_t y_of(std::int64_t patch) const { return patch / p_.shape.cols; }
  std::int64_t place(std::int64_t patch, int axis) const {
    return axis ? y_of(patch) : x_of(patch);
  }
  /// The patch at place m of the line of `patch`.
  std::int64_t on_line(std::int64_t patch, std::int64_t m, int axis) const {
    return axis ? m * p_.shape.cols + x_of(patch) : y_of(patch) * p_.shape.cols + m;
  }
  double* vector(Numbers& all, int set, int axis, std::int64_t patch) const {
    const std::int64_t heads = p_.shape.images * p_.shape.heads;
    return all.data() + ((set * heads + bh_) * patches_ + patch) * entries(axis);
  }
  bool from_q(int set) const { return set == 0 && p_.source != Source::k; }
  const double* table(int set, int axis) const {
    return p_.tables[set][axis].data() + (p_.tables_per_head ? head_ * p_.positions * d_ : 0);
  }
  double gate(double score) const {
    return 1 / (1 + std::exp(-(p_.gate_scale[head_] * score + p_.gate_offset[head_])));
  }

  /// Signed sums of the gates of one patch's line, before clamping.
  Numbers positions(std::int64_t patch, int axis) const {
    const std::int64_t length = entries(axis), own = place(patch, axis), prefix = p_.shape.prefix;
    const auto g = [&](std::int64_t m) {
      return gate(scores_[(prefix + patch) * n_ + prefix + on_line(patch, m, axis)]);
    };
    Numbers p(length, 0);
    double sum = 0;
    if (p_.span == Span::suffix) {
      for (std::int64_t m = length - 1; m >= 0; --m) p[m] = sum += g(m);
    } else {
      for (std::int64_t m = own + 1; m < length; ++m) p[m] = sum += g(m);
      sum = 0;
      for (std::int64_t m = own - 1; m >= 0; --m) p[m] = sum -= g(m);
    }
    return p;
  }
  double origin() const { return p_.span == Span::suffix ? 0 : double((p_.positions - 1) / 2); }
  double clamp(double p) const {
    return std::clamp(p, -origin(), double(p_.positions - 1) - origin());
  }

  void make_vectors(int set, int axis) {
    for (std::int64_t i = 0; i < patches_; ++i) {
      const double* a = (from_q(set) ? q_ : k_) + (p_.shape.prefix + i) * d_;
      const auto p = positions(i, axis);
      for (std::int64_t m = 0; m < entries(axis); ++m) {
        const double at = clamp(p[m]), below = std::floor(at), w = at - below;
        const auto z = [&](double position) {
          return dot(a, table(set, axis) + std::int64_t(position + origin()) * d_);
        };
        vector(s_.vectors[axis], set, axis, i)[m] = w * z(std::ceil(at)) + (1 - w) * z(below);
      }
    }
  }

  double distance(int set, int axis, std::int64_t i, std::int64_t n) {
    const double* a = vector(s_.vectors[axis], set, axis, i);
    const double* b = vector(s_.vectors[axis], set, axis, n);
    double sum = 0;
    for (std::int64_t m = 0; m < entries(axis); ++m) sum += (a[m] - b[m]) * (a[m] - b[m]);
    return std::sqrt(sum);
  }
  double bias(std::int64_t i, std::int64_t n) {
    double sum = 0;
    for (int set = 0; set < p_.sets(); ++set)
      for (int axis = 0; axis < 2; ++axis)
        sum += p_.form == Form::distance ? distance(set, axis, i, n)
                                         : vector(s_.vectors[axis], set, axis, i)[place(n, axis)];
    return sum;
  }
  double bias_factor() const { return p_.inside ? p_.scale : 1; }

  void attend() {
    const std::int64_t prefix = p_.shape.prefix;
    bias_.assign(n_ * n_, 0);
    weights_.assign(n_ * n_, 0);
    for (std::int64_t i = 0; i < n_; ++i) {
      double top = -INFINITY, sum = 0;
      for (std::int64_t n = 0; n < n_; ++n) {
        double& logit = weights_[i * n_ + n];
        logit = p_.scale * scores_[i * n_ + n];
        if (p_.has_bias && i >= prefix && n >= prefix) {
          bias_[i * n_ + n] = bias(i - prefix, n - prefix);
          logit += bias_factor() * p_.gain[head_] * bias_[i * n_ + n];
        }
        top = std::max(top, logit);
      }
      for (std::int64_t n = 0; n < n_; ++n) sum += std::exp(weights_[i * n_ + n] - top);
      s_.lse[bh_ * n_ + i] = top + std::log(sum);
      double* out = s_.out.data() + (bh_ * n_ + i) * d_;
      for (std::int64_t n = 0; n < n_; ++n) {
        double& w = weights_[i * n_ + n];
        w = std::exp(w - top) / sum;
        for (std::int64_t c = 0; c < d_; ++c) out[c] += w * v_[n * d_ + c];
      }
    }
  }

  void go_back() {
    const std::int64_t prefix = p_.shape.prefix;
    for (std::int64_t i = 0; i < n_; ++i) {
      const double* dout = p_.dout.data() + (bh_ * n_ + i) * d_;
      const double mean = dot(dout, s_.out.data() + (bh_ * n_ + i) * d_);
      for (std::int64_t n = 0; n < n_; ++n) {
        const double w = weights_[i * n_ + n];
        const double g = w * (dot(dout, v_ + n * d_) - mean);
        for (std::int64_t c = 0; c < d_; ++c) s_.dv[(bh_ * n_ + n) * d_ + c] += w * dout[c];
        add_score(i, n, p_.scale * g);
        if (!p_.has_bias || i < prefix || n < prefix) continue;
        s_.dgain[head_] += bias_factor() * g * bias_[i * n_ + n];
        s_.dgain_terms += std::abs(bias_factor() * g * bias_[i * n_ + n]);
        bias_back(i - prefix, n - prefix, bias_factor() * p_.gain[head_] * g);
      }
    }
  }
  void add_score(std::int64_t i, std::int64_t n, double ds) {
    for (std::int64_t c = 0; c < d_; ++c) {
      s_.dq[(bh_ * n_ + i) * d_ + c] += ds * k_[n * d_ + c];
      s_.dk[(bh_ * n_ + n) * d_ + c] += ds * q_[i * d_ + c];
    }
  }
  void bias_back(std::int64_t i, std::int64_t n, double db) {
    for (int set = 0; set < p_.sets(); ++set)
      for (int axis = 0; axis < 2; ++axis) {
        double* di = vector(s_.dvectors[axis], set, axis, i);
        if (p_.form == Form::direct) {
          di[place(n, axis)] += db;
          continue;
        }
        const double r = distance(set, axis, i, n);
        if (r == 0) continue;
        double* dn = vector(s_.dvectors[axis], set, axis, n);
        const double* ui = vector(s_.vectors[axis], set, axis, i);
        const double* un = vector(s_.vectors[axis], set, axis, n);
        for (std::int64_t m = 0; m < entries(axis); ++m) {
          di[m] += db / r * (ui[m] - un[m]);
          dn[m] -= db / r * (ui[m] - un[m]);
        }
      }
  }

  void vectors_back(int set, int axis) {
    const std::int64_t length = entries(axis), prefix = p_.shape.prefix;
    double* dtable =
        s_.dtables[set][axis].data() + (p_.tables_per_head ? head_ * p_.positions * d_ : 0);
    for (std::int64_t i = 0; i < patches_; ++i) {
      const std::int64_t token = prefix + i;
      const double* a = (from_q(set) ? q_ : k_) + token * d_;
      double* da = (from_q(set) ? s_.dq : s_.dk).data() + (bh_ * n_ + token) * d_;
      const auto p = positions(i, axis);
      Numbers dp(length, 0);
      for (std::int64_t m = 0; m < length; ++m) {
        const double at = clamp(p[m]), below = std::floor(at), w = at - below;
        const double du = vector(s_.dvectors[axis], set, axis, i)[m];
        for (const auto& [position, share] : {std::pair{std::ceil(at), w}, {below, 1 - w}}) {
          const std::int64_t row = std::int64_t(position + origin());
          for (std::int64_t c = 0; c < d_; ++c) {
            da[c] += share * du * table(set, axis)[row * d_ + c];
            dtable[row * d_ + c] += share * du * a[c];
          }
        }
        if (at != p[m]) continue;
        dp[m] = du * (dot(a, table(set, axis) + std::int64_t(std::ceil(at) + origin()) * d_) -
                      dot(a, table(set, axis) + std::int64_t(below + origin()) * d_));
      }
      for (std::int64_t j = 0; j < length; ++j) {
        const std::int64_t own = place(i, axis);
        double dg = 0;
        for (std::int64_t m = 0; m < length; ++m) {
          if (p_.span == Span::suffix ? m <= j : j > own && m >= j) dg += dp[m];
          if (p_.span == Span::between && j < own && m <= j) dg -= dp[m];
        }
        const std::int64_t other = prefix + on_line(i, j, axis);
        const double score = scores_[token * n_ + other], g = gate(score);
        const double dt = dg * g * (1 - g);
        s_.dgate_scale[head_] += dt * score;
        s_.dgate_offset[head_] += dt;
        add_score(token, other, p_.gate_scale[head_] * dt);
      }
    }
  }

  const Problem& p_;
  Solution& s_;
  std::int64_t head_, bh_, n_, d_, patches_;
  const double *q_, *k_, *v_;
  Numbers scores_, bias_, weights_;
};

}  // namespace

Solution solve(const Problem& problem) {
  const auto& shape = problem.shape;
  const std::int64_t heads = shape.images * shape.heads;
  Solution s;
  for (auto* numbers : {&s.out, &s.dq, &s.dk, &s.dv})
    numbers->assign(heads * shape.tokens() * shape.head_size, 0);
  s.lse.assign(heads * shape.tokens(), 0);
  for (auto* numbers : {&s.dgain, &s.dgate_scale, &s.dgate_offset}) numbers->assign(shape.heads, 0);
  for (int axis = 0; axis < 2; ++axis) {
    const std::int64_t entries = axis ? shape.rows : shape.cols;
    s.vectors[axis].assign(problem.sets() * heads * shape.patches() * entries, 0);
    s.dvectors[axis] = s.vectors[axis];
    if (problem.has_bias && !problem.has_tables) s.vectors[axis] = problem.vectors[axis];
    for (int set = 0; set < problem.sets(); ++set)
      s.dtables[set][axis].assign(problem.tables[set][axis].size(), 0);
  }
  for (std::int64_t image = 0; image < shape.images; ++image)
    for (std::int64_t head = 0; head < shape.heads; ++head) Head(problem, s, image, head).run();
  return s;
}

}  // namespace sape2::kernels::test
