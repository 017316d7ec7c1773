#include "onnx/wire_format.h"

#include <gtest/gtest.h>

namespace sape2::onnx {
namespace {

using namespace std::string_literals;

// The examples of Protocol Buffers' own description of the format.
TEST(WireFormat, VarintsTextsAndMessages) {
  Message one;
  one.integer(1, 150);
  EXPECT_EQ(one.bytes(), "\x08\x96\x01"s);
  Message text;
  text.text(2, "testing");
  EXPECT_EQ(text.bytes(), "\x12\x07testing"s);
  Message outer;
  outer.message(3, one);
  EXPECT_EQ(outer.bytes(), "\x1a\x03\x08\x96\x01"s);
}

TEST(WireFormat, NegativeNumbersFloatsAndHighFields) {
  Message message;
  message.integer(1, -2);
  EXPECT_EQ(message.bytes(), "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"s);
  Message number;
  number.number(20, 1.5F);
  EXPECT_EQ(number.bytes(), "\xa5\x01\x00\x00\xc0\x3f"s);
}

}  // namespace
}  // namespace sape2::onnx
