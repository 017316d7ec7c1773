#include "onnx/graph.h"

#include "sape2/version.h"

#include <array>
#include <bit>
#include <charconv>

// The numbers are those of fields and enumerators in ONNX's onnx.proto.
namespace sape2::onnx {
namespace {

constexpr std::int64_t kFloat = 1;
constexpr std::int64_t kInt64 = 7;

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

template <typename T>
Message tensor_message(const std::string& name, std::int64_t type, const Shape& shape,
                       std::span<const T> values) {
  Message tensor;
  for (const std::int64_t size : shape) tensor.integer(1, size);
  tensor.integer(2, type);
  tensor.text(8, name);
  tensor.text(9, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  return tensor;
}

// A float tensor of that shape; its first axis is open.
Message described(const std::string& name, const Shape& shape) {
  Message sizes;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    Message size;
    if (axis == 0) {
      size.text(2, "batch");
    } else {
      size.integer(1, shape[axis]);
    }
    sizes.message(1, size);
  }
  Message tensor_type;
  tensor_type.integer(1, kFloat);
  tensor_type.message(2, sizes);
  Message type;
  type.message(1, tensor_type);
  Message value;
  value.text(1, name);
  value.message(2, type);
  return value;
}

Message attribute_message(const std::string& name, const Attribute& attribute) {
  Message message;
  message.text(1, name);
  if (const auto* number = std::get_if<float>(&attribute)) {
    message.number(2, *number);
    message.integer(20, 1);
  } else if (const auto* integer = std::get_if<std::int64_t>(&attribute)) {
    message.integer(3, *integer);
    message.integer(20, 2);
  } else {
    for (const std::int64_t one : std::get<Shape>(attribute)) message.integer(8, one);
    message.integer(20, 7);
  }
  return message;
}

// The first version of the file format that has these operators.
std::int64_t format_version(std::int64_t opset) {
  if (opset >= 23) return 11;
  if (opset >= 21) return 10;
  return opset >= 19 ? 9 : 8;
}

}  // namespace

Graph::Graph() {
  body_.text(2, "sape2");
}

Value Graph::input(const std::string& name, const Shape& shape) {
  body_.message(11, described(name, shape));
  return {name};
}

void Graph::output(const std::string& name, const Value& value, const Shape& shape) {
  Message message;
  message.text(1, value.name);
  message.text(2, name);
  message.text(3, "output");
  message.text(4, "Identity");
  body_.message(1, message);
  body_.message(12, described(name, shape));
}

std::string Graph::unused_name(const std::string& name) {
  const std::string whole = scope_ + name;
  const std::int64_t number = numbered_[whole]++;
  return number == 0 ? whole : whole + "_" + std::to_string(number);
}

Value Graph::constant(const std::string& name, const Shape& shape, std::span<const float> values) {
  const Value value{unused_name(name)};
  body_.message(5, tensor_message<float>(value.name, kFloat, shape, values));
  return value;
}

Value Graph::shared(const std::string& name, const Shape& shape, std::span<const float> values) {
  if (shared_.insert(name).second) {
    body_.message(5, tensor_message<float>(name, kFloat, shape, values));
  }
  return {name};
}

Value Graph::number(float value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), value).ptr;
  return shared("number " + std::string(digits.begin(), end), {}, {{value}});
}

Value Graph::integers_of_shape(const Shape& shape, const Shape& values) {
  std::string name = shape.empty() ? "integer" : "integers";
  for (const std::int64_t value : values) name.append(" ").append(std::to_string(value));
  if (shared_.insert(name).second) {
    body_.message(5, tensor_message<std::int64_t>(name, kInt64, shape, values));
  }
  return {name};
}

Value Graph::integer(std::int64_t value) {
  return integers_of_shape({}, {value});
}

Value Graph::integers(const Shape& values) {
  return integers_of_shape({static_cast<std::int64_t>(values.size())}, values);
}

Value Graph::node(const std::string& op, const std::vector<Value>& inputs, Attributes attributes) {
  const Value result{unused_name(op)};
  Message message;
  for (const Value& input : inputs) message.text(1, input.name);
  message.text(2, result.name);
  message.text(3, result.name);
  message.text(4, op);
  for (const auto& [name, attribute] : attributes) {
    message.message(5, attribute_message(name, attribute));
  }
  body_.message(1, message);
  return result;
}

Value Graph::reshaped(const Value& x, const Shape& shape) {
  return node("Reshape", {x, integers(shape)});
}

Value Graph::transposed(const Value& x, const Shape& axes) {
  return node("Transpose", {x}, {{"perm", axes}});
}

Value Graph::part(const Value& x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  return node("Slice", {x, integers({begin}), integers({end}), integers({axis})});
}

Value Graph::entry(const Value& x, std::int64_t axis, std::int64_t index) {
  return node("Squeeze", {part(x, axis, index, index + 1), integers({axis})});
}

Value Graph::clamped(const Value& x, float low, float high) {
  return node("Clip", {x, number(low), number(high)});
}

std::string Graph::file(std::int64_t opset, const Properties& properties) const {
  Message operators;
  operators.text(1, "");
  operators.integer(2, opset);
  Message model;
  model.integer(1, format_version(opset));
  model.text(2, "sape2");
  model.text(3, SAPE2_VERSION);
  model.message(8, operators);
  for (const auto& [key, value] : properties) {
    Message entry;
    entry.text(1, key);
    entry.text(2, value);
    model.message(14, entry);
  }
  model.message(7, body_);
  return model.bytes();
}

}  // namespace sape2::onnx
