#include "io/safetensors_header.h"

#include "sape2/base/in_quotes.h"

#include <nlohmann/json.hpp>

#include <limits>
#include <set>
#include <utility>

namespace sape2::io {
namespace {

using nlohmann::json;

// Follows the header's fixed shape event by event, so that nothing is built, nested or recursed
// into that the format does not have:
//   { "__metadata__": {"key": "text", …},
//     "tensor": {"dtype": "F32", "shape": [1, …], "data_offsets": [0, 4]}, … }
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(std::string_view source) : source_(source) {}

  Header take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { unexpected(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { unexpected(text); }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool start_object(std::size_t) override;
  bool key(string_t& name) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail("its header is not valid JSON at byte " + std::to_string(position));
  }

 private:
  // What has been read so far, and so what may come next.
  enum class State {
    start,
    top_level,
    metadata_start,
    metadata,
    metadata_value,
    tensor_start,
    tensor,
    dtype,
    shape_start,
    shape,
    offsets_start,
    offsets,
    finished,
  };

  [[noreturn]] void fail(const std::string& reason) const {
    throw FormatError(in_quotes(source_) + " is not a valid safetensors file: " + reason);
  }
  [[noreturn]] void fail_tensor(const std::string& reason) const {
    fail("tensor " + in_quotes(entry_.name) + " " + reason);
  }
  [[noreturn]] void unexpected(const std::string& found) const;
  void tensor_key(const std::string& name);

  std::string_view source_;
  Header header_;
  State state_ = State::start;
  std::set<std::string> names_;
  std::string metadata_key_;
  HeaderEntry entry_;
  std::vector<std::uint64_t> offsets_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

void HeaderReader::unexpected(const std::string& found) const {
  switch (state_) {
    case State::metadata_start:
      fail("its __metadata__ is " + found + ", expected an object of strings");
    case State::metadata_value:
      fail("its metadata entry " + in_quotes(metadata_key_) + " is " + found +
           ", expected a string");
    case State::tensor_start:
      fail_tensor("is " + found + ", expected an object with dtype, shape and data_offsets");
    case State::dtype:
      fail_tensor("has the dtype " + found + ", expected a string");
    case State::shape_start:
      fail_tensor("has the shape " + found + ", expected a list of whole numbers");
    case State::shape:
      fail_tensor("has " + found + " in its shape, expected whole numbers from 0");
    case State::offsets_start:
      fail_tensor("has the data_offsets " + found + ", expected a list of two whole numbers");
    case State::offsets:
      fail_tensor("has " + found + " in its data_offsets, expected whole numbers from 0");
    default:
      fail("its header holds " + found + " where an object was expected");
  }
}

bool HeaderReader::number_unsigned(number_unsigned_t value) {
  if (state_ == State::shape) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail_tensor("has " + std::to_string(value) + " in its shape, expected at most 2^63 - 1");
    }
    if (entry_.shape.size() == kMostDimensions) {
      fail_tensor("has more than " + std::to_string(kMostDimensions) + " dimensions");
    }
    entry_.shape.push_back(static_cast<std::int64_t>(value));
  } else if (state_ == State::offsets) {
    if (offsets_.size() == 2) fail_tensor("has more than two data_offsets, expected begin and end");
    offsets_.push_back(value);
  } else {
    unexpected(std::to_string(value));
  }
  return true;
}

bool HeaderReader::string(string_t& value) {
  if (state_ == State::metadata_value) {
    header_.metadata.emplace(std::move(metadata_key_), std::move(value));
    state_ = State::metadata;
  } else if (state_ == State::dtype) {
    const auto dtype = dtype_from_name(value);
    if (!dtype) fail_tensor("has the unknown dtype " + in_quotes(value));
    entry_.dtype = *dtype;
    state_ = State::tensor;
  } else {
    unexpected("the text " + in_quotes(value));
  }
  return true;
}

bool HeaderReader::start_object(std::size_t) {
  switch (state_) {
    case State::start:
      state_ = State::top_level;
      return true;
    case State::metadata_start:
      state_ = State::metadata;
      return true;
    case State::tensor_start:
      state_ = State::tensor;
      return true;
    default:
      unexpected("an object");
  }
}

bool HeaderReader::key(string_t& name) {
  if (state_ == State::metadata) {
    if (header_.metadata.contains(name)) {
      fail("its metadata entry " + in_quotes(name) + " appears twice");
    }
    metadata_key_ = std::move(name);
    state_ = State::metadata_value;
  } else if (state_ == State::tensor) {
    tensor_key(name);
  } else {
    if (!names_.insert(name).second) fail("its header has the key " + in_quotes(name) + " twice");
    state_ = name == kMetadataKey ? State::metadata_start : State::tensor_start;
    entry_ = HeaderEntry{};
    entry_.name = std::move(name);
    offsets_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
  }
  return true;
}

void HeaderReader::tensor_key(const std::string& name) {
  const auto enter = [&](bool& seen, State next) {
    if (std::exchange(seen, true)) fail_tensor("has the key " + in_quotes(name) + " twice");
    state_ = next;
  };
  if (name == "dtype") {
    enter(has_dtype_, State::dtype);
  } else if (name == "shape") {
    enter(has_shape_, State::shape_start);
  } else if (name == "data_offsets") {
    enter(has_offsets_, State::offsets_start);
  } else {
    fail_tensor("has the unknown key " + in_quotes(name) +
                ", expected dtype, shape and data_offsets only");
  }
}

bool HeaderReader::end_object() {
  if (state_ == State::tensor) {
    const char* missing = !has_dtype_     ? "dtype"
                          : !has_shape_   ? "shape"
                          : !has_offsets_ ? "data_offsets"
                                          : nullptr;
    if (missing != nullptr) fail_tensor(std::string("has no ") + missing);
    header_.entries.push_back(std::move(entry_));
    state_ = State::top_level;
  } else {
    state_ = state_ == State::metadata ? State::top_level : State::finished;
  }
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  if (state_ == State::shape_start) {
    state_ = State::shape;
  } else if (state_ == State::offsets_start) {
    state_ = State::offsets;
  } else {
    unexpected("a list");
  }
  return true;
}

bool HeaderReader::end_array() {
  if (state_ == State::offsets) {
    if (offsets_.size() != 2) {
      fail_tensor("has " + std::to_string(offsets_.size()) +
                  " data_offsets, expected two, begin and end");
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
  }
  state_ = State::tensor;
  return true;
}

}  // namespace

Header parse_header(std::string_view json_text, std::string_view source) {
  const auto fail = [&](const std::string& reason) {
    throw FormatError(in_quotes(source) + " is not a valid safetensors file: " + reason);
  };
  if (json_text.empty() || json_text.front() != '{') {
    fail("its header does not begin with '{'");
  }
  // The JSON parser takes a zero byte for the end of its input and would ignore what follows.
  if (const auto position = json_text.find('\0'); position != std::string_view::npos) {
    fail("its header is not valid JSON at byte " + std::to_string(position + 1));
  }
  HeaderReader reader(source);
  json::sax_parse(json_text.begin(), json_text.end(), &reader);
  return reader.take();
}

}  // namespace sape2::io
