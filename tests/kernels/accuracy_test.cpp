// The rule of every kernel: its error against float64 is at most twice that of the plain formula in
// float32, over random shapes, modes, spans, forms, prefixes and magnitudes.
#include "harness.h"
#include "targets.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

namespace sape2::kernels::testing {
namespace {

/// Squared relative errors, added up over cases.
class Errors {
 public:
  void add(const std::string& name, const Array<double>& exact, const Array<float>& plain,
           const Array<float>& kernel) {
    // Saturated softmaxes have gradients of nearly nothing: errors far below the inputs' size
    // count as absolute.
    const double size = spread(exact, Array<double>(exact.size(), 0.0)) + 1e-3;
    Sum& sum = sums_[name];
    sum.plain += std::pow(spread(plain, exact) / size, 2);
    sum.kernel += std::pow(spread(kernel, exact) / size, 2);
    ++sum.cases;
  }

  void expect_at_most_twice() const {
    for (const auto& [name, sum] : sums_) {
      const double floor = 1e-7;
      EXPECT_LE(std::sqrt(sum.kernel / sum.cases), 2 * std::sqrt(sum.plain / sum.cases) + floor)
          << name;
    }
  }

 private:
  struct Sum {
    double plain = 0.0, kernel = 0.0;
    int cases = 0;
  };
  std::map<std::string, Sum> sums_;
};

class Draw {
 public:
  explicit Draw(unsigned seed) : generator(seed) {}

  template <typename T>
  T pick(std::initializer_list<T> choices) {
    return *(choices.begin() + generator() % choices.size());
  }
  bool flip() { return pick({false, true}); }

  Problem<double> problem(double magnitude) {
    Problem<double> p;
    p.shape = {pick({1, 2}),
               pick({1, 2, 3}),
               pick({1, 2, 3, 5, 8, 9}),
               pick({1, 2, 4, 7, 8, 11}),
               pick({0, 0, 1, 3}),
               pick({1, 3, 8, 16, 24, 32, 64, 80})};
    p.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(p.shape.head_size)));
    p.inside = flip();
    p.source = pick({Source::q, Source::k, Source::qk});
    p.span = pick({Span::suffix, Span::between});
    p.form = pick({Form::distance, Form::direct});
    p.tables_per_head = flip();
    set_positions(p, flip());
    fill(p, generator, magnitude, 0.3);
    return p;
  }

  /// Exact table sizes, or too small ones that clamp.
  static void set_positions(Problem<double>& p, bool clamp) {
    const int longest = static_cast<int>(std::max(p.shape.rows, p.shape.cols));
    if (p.span == Span::suffix) {
      p.positions = clamp ? std::max(2, longest / 2) : longest + 1;
    } else {
      p.positions = 2 * (clamp ? longest / 2 : longest - 1) + 1;
    }
  }

  std::mt19937 generator;
};

#define ADD(what) errors.add(#what, exact.what, plain.what, kernel.what)

void add_case(const Problem<double>& p, Errors& errors) {
  const Problem<float> single = cast<float>(p);
  const Result<double> exact = Reference<double>(p).run();
  const Result<float> plain = Reference<float>(single).run();
  const Result<float> kernel = run_kernels(single, ThreadExecutor(2));
  ADD(out), ADD(softmax), ADD(dq), ADD(dk), ADD(dv);
  if (!p.biased) return;
  ADD(dq_x), ADD(dq_y), ADD(dk_x), ADD(dk_y);
  ADD(dgate_scale), ADD(dgate_offset), ADD(dgain);
}

void add_stages(const Problem<double>& p, Errors& errors) {
  const Problem<float> single = cast<float>(p);
  const Result<double> both = Reference<double>(p).run();
  {
    const Array<float> dx = cast<float>(both.dx), dy = cast<float>(both.dy);
    const auto exact = Reference<double>(p).run_stage1(cast<double>(dx), cast<double>(dy));
    const auto plain = Reference<float>(single).run_stage1(dx, dy);
    const auto kernel = run_stage1_kernels(single, dx, dy, ThreadExecutor(2));
    ADD(x), ADD(y), ADD(dq), ADD(dk), ADD(dq_x), ADD(dk_y), ADD(dgate_scale), ADD(dgate_offset);
  }
  const Array<float> x = cast<float>(both.x), y = cast<float>(both.y);
  const auto exact = Reference<double>(p).run_stage2(cast<double>(x), cast<double>(y));
  const auto plain = Reference<float>(single).run_stage2(x, y);
  const auto kernel = run_stage2_kernels(single, x, y, ThreadExecutor(2));
  ADD(out), ADD(dq), ADD(dk), ADD(dv), ADD(dx), ADD(dy), ADD(dgain);
}

TEST(Accuracy, Sape2AttentionIsWithinTwiceThePlainFormula) {
  for_each_target([] {
    for (const double magnitude : {1e-3, 0.1, 1.0, 5.0, 30.0}) {
      SCOPED_TRACE(magnitude);
      Draw draw(11);
      Errors errors;
      for (int round = 0; round < 24; ++round) add_case(draw.problem(magnitude), errors);
      errors.expect_at_most_twice();
    }
  });
}

TEST(Accuracy, StagesAloneAreWithinTwiceThePlainFormula) {
  for_each_target([] {
    for (const double magnitude : {1e-3, 1.0, 30.0}) {
      SCOPED_TRACE(magnitude);
      Draw draw(12);
      Errors errors;
      for (int round = 0; round < 24; ++round) add_stages(draw.problem(magnitude), errors);
      errors.expect_at_most_twice();
    }
  });
}

TEST(Accuracy, PlainAttentionIsWithinTwiceThePlainFormula) {
  for_each_target([] {
    for (const double magnitude : {1e-3, 1.0, 30.0}) {
      SCOPED_TRACE(magnitude);
      Draw draw(13);
      Errors errors;
      for (int round = 0; round < 12; ++round) {
        Problem<double> p = draw.problem(magnitude);
        p.biased = false;
        add_case(p, errors);
      }
      errors.expect_at_most_twice();
    }
  });
}

void space_evenly(Array<double>& table, std::size_t row) {
  for (std::size_t i = 2 * row; i < table.size(); ++i) {
    table[i] =
        static_cast<float>(table[i % row] + (i / row) * (table[row + i % row] - table[i % row]));
  }
}

/// Beyond one tile, beyond the size where a head's scores are kept whole, and long vectors.
TEST(Accuracy, LargeGridsAreWithinTwiceThePlainFormula) {
  for_each_target([] {
    Draw draw(14);
    Errors errors;
    for (const Form form : {Form::distance, Form::direct}) {
      for (const Span span : {Span::suffix, Span::between}) {
        for (const auto [rows, cols, prefix] :
             {std::array{14, 14, 1}, std::array{17, 18, 0}, std::array{3, 97, 70}}) {
          Problem<double> p;
          p.shape = {1, 1, rows, cols, prefix, 16};
          p.scale = 0.25;
          p.form = form;
          p.span = span;
          p.source = draw.pick({Source::q, Source::k, Source::qk});
          Draw::set_positions(p, false);
          fill(p, draw.generator, 1.0, 0.3);
          // Of so many positions one will lie within rounding of an integer. Where a table's rows
          // are evenly spaced, its slope is the same on either side.
          for (Array<double>* table : {&p.q_x, &p.q_y, &p.k_x, &p.k_y}) space_evenly(*table, 16);
          add_case(p, errors);
          add_stages(p, errors);
        }
      }
    }
    errors.expect_at_most_twice();
  });
}

TEST(Accuracy, EveryHeadSizeWorks) {
  for_each_target([] {
    Draw draw(15);
    Errors errors;
    for (int d = 1; d <= 256; d = d < 40 ? d + 1 : d + 27) {
      Problem<double> p = draw.problem(1.0);
      p.shape = {1, 1, 2, 3, 1, d};
      p.scale = static_cast<float>(1 / std::sqrt(d));
      Draw::set_positions(p, false);
      fill(p, draw.generator, 1.0, 0.3);
      add_case(p, errors);
    }
    errors.expect_at_most_twice();
  });
}

TEST(Accuracy, CopeIsWithinTwiceThePlainFormula) {
  for_each_target([] {
    for (const double magnitude : {1e-3, 1.0, 5.0}) {
      SCOPED_TRACE(magnitude);
      Draw draw(16);
      Errors errors;
      for (int round = 0; round < 16; ++round) {
        Problem<double> p = draw.problem(magnitude);
        p.source = Source::k;
        p.tables_per_head = false;
        if (round % 4 == 0) p.shape = {1, 1, 1, 150, 1, 16};
        p.positions = draw.pick({1, 2, 9, 64});
        fill(p, draw.generator, magnitude, 0.3);
        p.gate_scale = {p.scale};
        const Problem<float> single = cast<float>(p);
        const CopeResult<double> exact = cope_reference(p);
        const CopeResult<float> plain = cope_reference(single);
        const CopeResult<float> kernel = run_cope_kernels(single, ThreadExecutor(2));
        ADD(out), ADD(dq), ADD(dk), ADD(dv), ADD(dtable);
      }
      errors.expect_at_most_twice();
    }
  });
}

}  // namespace
}  // namespace sape2::kernels::testing
