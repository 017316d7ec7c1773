#pragma once

#include "onnx/wire_format.h"

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sape2::onnx {

using Shape = std::vector<std::int64_t>;

/// What a node puts out, an input of the graph, or a constant: known by its name.
struct Value {
  std::string name;
};

using Attribute = std::variant<std::int64_t, float, Shape>;
using Attributes = std::map<std::string, Attribute>;

/// A graph of ONNX's standard operators that grows node by node. The functions below are the
/// operators as a reader of formulas knows them; shapes hold 0 where an axis stays as it is, which
/// is how the number of images stays open.
class Graph {
 public:
  Graph();

  Value input(const std::string& name, const Shape& shape);
  void output(const std::string& name, const Value& value, const Shape& shape);

  /// Numbers that the file holds, row-major.
  Value constant(const std::string& name, const Shape& shape, std::span<const float> values);
  /// The same for numbers that many layers need: a name always stands for the same ones.
  Value shared(const std::string& name, const Shape& shape, std::span<const float> values);
  Value number(float value);
  Value integer(std::int64_t value);
  Value integers(const Shape& values);
  Value node(const std::string& op, const std::vector<Value>& inputs, Attributes attributes = {});

  Value add(const Value& a, const Value& b) { return node("Add", {a, b}); }
  Value subtract(const Value& a, const Value& b) { return node("Sub", {a, b}); }
  Value multiply(const Value& a, const Value& b) { return node("Mul", {a, b}); }
  Value product(const Value& a, const Value& b) { return node("MatMul", {a, b}); }
  Value softmax(const Value& x, std::int64_t axis) {
    return node("Softmax", {x}, {{"axis", axis}});
  }
  Value reshaped(const Value& x, const Shape& shape);
  Value transposed(const Value& x, const Shape& axes);
  /// Entries `begin` … `end` − 1 along an axis.
  Value part(const Value& x, std::int64_t axis, std::int64_t begin, std::int64_t end);
  /// The entry `index` of an axis, which is gone then.
  Value entry(const Value& x, std::int64_t axis, std::int64_t index);
  Value clamped(const Value& x, float low, float high);

  /// While one lives, names begin with its text: `blocks.0.attn`.
  class Scope {
   public:
    Scope(Graph& graph, const std::string& name) : graph_(graph), before_(graph.scope_) {
      graph_.scope_ += name + ".";
    }
    ~Scope() { graph_.scope_ = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Graph& graph_;
    std::string before_;
  };

  using Properties = std::vector<std::pair<std::string, std::string>>;
  /// The whole file, for one version of the operators.
  std::string file(std::int64_t opset, const Properties& properties) const;

 private:
  std::string unused_name(const std::string& name);
  Value integers_of_shape(const Shape& shape, const Shape& values);

  Message body_;  // nodes, initializers, inputs and outputs, in any order
  std::string scope_;
  std::map<std::string, std::int64_t> numbered_;  // how many values of a name there are
  std::set<std::string> shared_;
};

}  // namespace sape2::onnx
