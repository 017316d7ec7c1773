// Wrong calls of every operator, public, internal and of the Python package: one or two arguments
// of a good call are replaced by something odd. A call must be refused in one sentence that names
// the operator, or give what the plain formulas give. Crashes are for the caller to see: this runs
// as a process of its own.
//
//   hostile_operators SEED FIRST COUNT     tries cases FIRST … FIRST + COUNT − 1 of a seed
//
// Prints the number of each case before it is tried, and "FAILED sentence" where it went wrong.
#include "sape2/base/in_quotes.h"
#include "sape2/ops/ops.h"

#include "support/operator_call.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <random>

namespace sape2::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

class Spoiler {
 public:
  explicit Spoiler(uint64_t seed) : random_(seed) { at::manual_seed(seed); }

  size_t below(size_t limit) { return random_() % limit; }
  template <class T>
  T any(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }

  /// A call with one to three arguments replaced, and what was done to it.
  OperatorCall call(std::string& done) {
    const size_t group = below(9);
    const auto& all = group < 2   ? package_operators()
                      : group < 4 ? public_operators()
                                  : internal_operators();
    OperatorCall call(all[below(all.size())]);
    done = call.name();
    if (below(3) == 0) convert_all(call, done);
    for (size_t times = 1 + below(3); times > 0; --times) {
      const size_t index = below(call.names().size());
      done += ", " + call.names()[index];
      try {
        spoil(call.values()[index], done);
      } catch (const std::exception&) {
        done += " (as it is)";  // LibTorch itself does not do this to such a tensor
      }
    }
    return call;
  }

 private:
  /// The whole call in another type, on another device, or behind views.
  void convert_all(OperatorCall& call, std::string& done) {
    const size_t how = below(4);
    done += " (all " + std::to_string(how) + ")";
    const auto convert = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      switch (how) {
        case 0:
          return tensor.is_floating_point() ? tensor.to(at::kBFloat16) : tensor;
        case 1:
          return tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor;
        case 2:
          return tensor.to(at::kMeta);
        default:
          return tensor.dim() > 1 ? tensor.transpose(0, -1).contiguous().transpose(0, -1) : tensor;
      }
    };
    for (c10::IValue& value : call.values()) {
      if (value.isTensor()) value = convert(value.toTensor());
      if (!value.isTensorList()) continue;
      Tensors list = value.toTensorVector();
      for (at::Tensor& each : list) each = convert(each);
      value = list;
    }
  }

  void spoil(c10::IValue& value, std::string& done) {
    if (value.isTensorList()) {
      value = spoilt(value.toTensorVector(), done);
    } else if (value.isIntList()) {
      value = spoilt(value.toIntVector(), done);
    } else if (value.isTensor()) {
      value =
          below(8) == 0 ? c10::IValue(at::Tensor()) : c10::IValue(spoilt(value.toTensor(), done));
    } else if (value.isInt()) {
      constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
      const auto old = static_cast<uint64_t>(value.toInt());  // may go round
      value = any<int64_t>({0, -1, 1, static_cast<int64_t>(old + 1), static_cast<int64_t>(old - 1),
                            static_cast<int64_t>(2 * old), 7, 200, int64_t{1} << 31,
                            int64_t{1} << 32, int64_t{1} << 62, kMost, -kMost - 1, 0b111111});
      done += "=" + std::to_string(value.toInt());
    } else if (value.isDouble()) {
      constexpr double kMost = std::numeric_limits<double>::max();
      value = any<double>({0.0, -1.0, 1e-40, 1e-60, 1e39, -kMost, kMost, NAN, INFINITY, 30.0});
      done += "=" + std::to_string(value.toDouble());
    } else if (value.isBool()) {
      value = !value.toBool();
    } else if (value.isString() && value.toStringRef().starts_with("{")) {
      value = spoilt_json(value.toStringRef(), done);
    } else if (value.isString()) {
      value = any<std::string>({"",
                                "none",
                                "distance",
                                "direct",
                                "q",
                                "k",
                                "qk",
                                "suffix",
                                "between",
                                "kq",
                                "DIRECT",
                                std::string(1000, 'x'),
                                std::string("k\0", 2),
                                "ape",
                                "lape",
                                "cope",
                                "rope2d-mixed",
                                "rpe-shaw",
                                "sape2-rel-qk[gain=1e999]",
                                "..",
                                "a\nb",
                                "\x1b[31m",
                                "\xff"});
      done += "=" + in_quotes(value.toStringRef().substr(0, 12));
    } else if (value.isNone()) {
      value = at::randn({3});
    }
  }

  std::vector<int64_t> spoilt(std::vector<int64_t> list, std::string& done) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const size_t how = below(4);
    if (how == 0) list.clear();
    if (how == 1) list.push_back(3);
    if (how >= 2 && !list.empty())
      list[below(list.size())] =
          any<int64_t>({0, -1, 1, 7, 1 << 20, int64_t{1} << 40, kMost, -kMost - 1});
    done += " numbers " + std::to_string(how);
    return list;
  }

  /// Another number, or a piece cut out.
  std::string spoilt_json(std::string text, std::string& done) {
    const size_t place = below(text.size());
    const size_t digit = text.find_first_of("0123456789", place);
    if (digit == std::string::npos || below(4) == 0) {
      text.erase(place, 1 + below(20));
    } else {
      const size_t end = std::min(text.find_first_not_of("0123456789.", digit), text.size());
      const auto number =
          any<std::string>({"0", "-1", "1e999", "9223372036854775807", "1e308", "0.5",
                            "99999999999999999999999", "null", "\"\"", "[[[[[[[[[[[1"});
      text.replace(digit, end - digit, number);
      done += "=" + number;
    }
    return text;
  }

  Tensors spoilt(Tensors list, std::string& done) {
    const size_t how = below(4);
    if (how == 0 && !list.empty()) list.pop_back();
    if (how == 1) list.push_back(at::randn({2, 3, 7, 8}));
    if (how >= 2 && !list.empty()) {
      at::Tensor& one = list[below(list.size())];
      one = how == 2 ? spoilt(one, done) : at::Tensor();
    }
    done += " list " + std::to_string(how);
    return list;
  }

  at::Tensor spoilt(const at::Tensor& tensor, std::string& done) {
    if (!tensor.defined()) return at::randn({2, 3, 7, 8});
    if (tensor.numel() > 1'000'000) return tensor;  // made by case 9 below
    const size_t how = below(16);
    done += " #" + std::to_string(how);
    const int64_t axes = tensor.dim(), axis = axes == 0 ? 0 : int64_t(below(axes));
    switch (how) {
      case 0:
        return axes == 0 ? tensor : tensor.narrow(axis, 0, tensor.size(axis) / 2);
      case 1:
        return axes == 0 ? tensor : at::cat({tensor, tensor}, axis);
      case 2:
        return tensor.unsqueeze(axis);
      case 3:
        return axes == 0 ? tensor : tensor.select(axis, 0);
      case 4:
        return axes == 0 ? tensor : tensor.narrow(axis, 0, 0);
      case 5:
        return tensor.to(any<at::ScalarType>({at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                                              at::kBool, at::kByte, at::kComplexFloat}));
      case 6:
        return tensor.to(at::kMeta);
      case 7:
        return axes < 2 ? tensor : tensor.transpose(axis, (axis + 1) % axes);
      case 8:  // one number over and over: strides of 0
        return tensor.flatten().narrow(0, 0, 1).reshape({}).expand(tensor.sizes());
      case 9: {  // more of that than any memory holds
        std::vector<int64_t> sizes(axes, 1);
        if (axes == 0) return tensor;
        sizes[axis] = int64_t{1} << 45;
        return at::zeros({1}, tensor.options()).expand(sizes);
      }
      case 10:
        return at::full_like(tensor, NAN);
      case 11:
        return at::full_like(tensor, any<double>({INFINITY, -INFINITY, 1e30, -1e30, 0.0}));
      case 12:
        return at::zeros({}, tensor.options());
      case 13:
        return tensor.requires_grad() || !tensor.is_floating_point()
                   ? tensor
                   : tensor.clone().requires_grad_();
      case 14:
        return axes == 4 ? at::stack({tensor, tensor}) : tensor.reshape({-1});
      default:
        return tensor.is_meta() ? tensor : tensor.to_sparse();
    }
  }

  std::mt19937_64 random_;
};

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

struct Outcome {
  std::optional<Tensors> outputs;
  std::string error;
};

Outcome outcome_of(const OperatorCall& call) {
  try {
    return {call.run(), ""};
  } catch (const c10::Error& error) {
    return {std::nullopt, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {std::nullopt, error.what()};
  }
}

/// What LibTorch refuses before or beside us, in its own words.
bool is_libtorch_s(const std::string& text) {
  for (const char* part : {"Could not run", "can't allocate memory", "Storage size calculation",
                           "out of memory", "not enough memory", "sparse", "Sparse",
                           // Without any tensor the dispatcher finds no device to call.
                           "There were no tensor arguments to this function"})
    if (text.find(part) != std::string::npos) return true;
  return false;
}

bool is_finite(const at::Tensor& tensor) {
  return !tensor.is_meta() && tensor.isfinite().all().item<bool>();
}

/// Whether no argument is so large that rounding alone decides what comes out.
bool is_moderate(OperatorCall& call) {
  for (const c10::IValue& value : call.values()) {
    if (!value.isTensor() || !value.toTensor().defined() || value.toTensor().is_meta()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (!is_finite(tensor) || (tensor.numel() > 0 && tensor.abs().max().item<double>() > 100))
      return false;
  }
  return true;
}

/// Whether the package's library has it: what it says is shown to Python's users as it is, without
/// the operator's name.
bool is_of_the_package(const std::string& name) {
  const auto& all = package_operators();
  return std::find(all.begin(), all.end(), name) != all.end();
}

/// Why the outcome is wrong; empty: it is right.
std::string verdict(OperatorCall& call, const Outcome& outcome) {
  if (is_of_the_package(call.name())) {
    if (outcome.error.find("what():") != std::string::npos ||
        outcome.error.find("json.exception") != std::string::npos)
      return "the error is in the words of a library: " + outcome.error;
    return "";
  }
  if (!outcome.outputs) {
    if (is_libtorch_s(outcome.error)) return "";
    if (outcome.error.find(call.name() + ": ") == std::string::npos)
      return "the error does not name the operator: " + outcome.error;
    if (outcome.error.find('\n') != std::string::npos)
      return "the error is more than a sentence: " + outcome.error;
    return "";
  }
  // A backward operator believes what it is told of the forward pass; the formulas do it again.
  if (call.name().find("_backward") != std::string::npos) return "";
  const ops::ReferenceGuard plain;
  const Outcome formula = outcome_of(call);
  if (!formula.outputs) return "the formulas refuse it: " + first_line(formula.error);
  const bool comparable = is_moderate(call);
  for (size_t i = 0; i < outcome.outputs->size(); ++i) {
    const at::Tensor &ours = (*outcome.outputs)[i], &theirs = (*formula.outputs)[i];
    if (ours.sizes() != theirs.sizes()) return "the formulas give another shape";
    if (i > 0 && call.name().find("attention") != std::string::npos) continue;  // softmax rows
    if (!comparable || !is_finite(theirs)) continue;
    const double close = ours.scalar_type() == at::kBFloat16 ? 0.1 : 1e-3;
    if (!at::allclose(ours.to(at::kDouble), theirs.to(at::kDouble), close, close))
      return "the formulas give other numbers";
  }
  return "";
}

/// Whether all went well.
bool try_case(uint64_t seed, uint64_t number) {
  Spoiler spoiler(seed * 1'000'003 + number);
  std::string done;
  OperatorCall call = spoiler.call(done);
  std::cout << number << " " << done << std::endl;  // before it may crash
  const std::string wrong = verdict(call, outcome_of(call));
  if (!wrong.empty()) std::cout << "FAILED " << wrong << std::endl;
  return wrong.empty();
}

}  // namespace
}  // namespace sape2::testing

int main(int count, char** arguments) {
  if (count != 4) {
    std::cerr << "usage: hostile_operators SEED FIRST COUNT\n";
    return 2;
  }
  at::set_num_threads(1);
  const uint64_t seed = std::strtoull(arguments[1], nullptr, 10);
  const uint64_t first = std::strtoull(arguments[2], nullptr, 10);
  const uint64_t cases = std::strtoull(arguments[3], nullptr, 10);
  bool well = true;
  for (uint64_t number = first; number < first + cases; ++number)
    well = sape2::testing::try_case(seed, number) && well;
  std::cout << "done" << std::endl;
  return well ? 0 : 1;
}
