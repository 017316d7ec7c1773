#include "sape2/io/safetensors.h"

#include "io/raw_file.h"
#include "support/error_text.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace sape2::io::test {
namespace {

using namespace sape2::testing;

struct HostileFile {
  std::string name;
  std::string file;
  std::string expected;  // part of the sentence
};

void PrintTo(const HostileFile& hostile, std::ostream* out) {
  *out << hostile.name;
}

std::string tensor_file(const std::string& description, const std::string& data = "") {
  return raw_file("{\"t\":" + description + "}", data);
}

const std::vector<HostileFile> kHostileFiles = {
    {"Empty", "", "it is empty"},
    {"ShorterThanLength", "1234567", "has 7 bytes, expected at least 8"},
    {"HeaderTooLarge", raw_file(100'000'001, "{}"), "100000001 bytes, expected at most 100000000"},
    {"Picture", "\x89PNG\r\n\x1a\n and so on", "it is a PNG image"},
    {"HeaderHuge", raw_file(~std::uint64_t{0}, "{}"), "18446744073709551615 bytes"},
    {"HeaderBeyondFile", raw_file(3, "{}"),
     "claims 3 bytes, but the file has only 2 after the length; it was probably cut off"},
    {"NoHeader", raw_file(""), "does not begin with '{'"},
    {"List", raw_file("[]"), "does not begin with '{'"},
    {"LeadingSpace", raw_file(" {}"), "does not begin with '{'"},
    {"ByteOrderMark", raw_file("\xEF\xBB\xBF{}"), "does not begin with '{'"},
    {"NotClosed", raw_file("{"), "not valid JSON at byte"},
    {"TrailingText", raw_file("{} {}"), "not valid JSON at byte 4"},
    {"TrailingComma", raw_file(R"({"__metadata__":{},})"), "not valid JSON"},
    {"Comment", raw_file("{/**/}"), "not valid JSON"},
    {"ZeroByte", raw_file(std::string("{}\0garbage", 10)), "not valid JSON at byte 3"},
    {"InvalidUtf8", raw_file("{\"\xff\":{}}"), "not valid JSON"},
    {"OverlongUtf8", raw_file("{\"\xc0\xaf\":{}}"), "not valid JSON"},
    {"LoneSurrogate", raw_file(R"({"\ud800":{}})"), "not valid JSON"},
    {"NumberTooLarge", tensor_file(R"({"shape":[1e999]})"), "not valid JSON"},
    {"NestedLists", tensor_file(std::string(2'000'000, '[')), "is a list, expected an object"},
    {"NestedObjects", tensor_file([] {
       std::string text;
       for (int i = 0; i < 500'000; ++i) text += "{\"a\":";
       return text;
     }()),
     "unknown key \"a\""},
    {"NestedInShape", tensor_file(R"({"shape":)" + std::string(1'000'000, '[')),
     "has a list in its shape"},
    {"NestedInMetadata", raw_file(R"({"__metadata__":{"a":{"b":{}}}})"),
     "metadata entry \"a\" is an object, expected a string"},
    {"TwoTensorsOfOneName",
     raw_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
              R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
              "xy"),
     "has the key \"a\" twice"},
    {"TwoMetadata", raw_file(R"({"__metadata__":{},"__metadata__":{}})"),
     "has the key \"__metadata__\" twice"},
    {"TwoMetadataEntries", raw_file(R"({"__metadata__":{"k":"1","k":"2"}})"),
     "metadata entry \"k\" appears twice"},
    {"TwoDtypes", tensor_file(R"({"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]})"),
     "tensor \"t\" has the key \"dtype\" twice"},
    {"MetadataNull", raw_file(R"({"__metadata__":null})"), "__metadata__ is null, expected"},
    {"MetadataNumber", raw_file(R"({"__metadata__":{"k":1}})"),
     "entry \"k\" is 1, expected a string"},
    {"MetadataList", raw_file(R"({"__metadata__":{"k":[]}})"), "entry \"k\" is a list"},
    {"TensorNumber", tensor_file("7"), "tensor \"t\" is 7, expected an object"},
    {"TensorText", tensor_file("\"x\""), "tensor \"t\" is the text \"x\", expected an object"},
    {"UnknownKey", tensor_file(R"({"dtype":"U8","shap":[]})"),
     "tensor \"t\" has the unknown key \"shap\""},
    {"NoDtype", tensor_file(R"({"shape":[],"data_offsets":[0,1]})", "x"), "\"t\" has no dtype"},
    {"NoShape", tensor_file(R"({"dtype":"U8","data_offsets":[0,1]})", "x"), "\"t\" has no shape"},
    {"NoOffsets", tensor_file(R"({"dtype":"U8","shape":[]})"), "\"t\" has no data_offsets"},
    {"UnknownDtype", tensor_file(R"({"dtype":"F31","shape":[],"data_offsets":[0,4]})", "abcd"),
     "tensor \"t\" has the unknown dtype \"F31\""},
    {"DtypeNumber", tensor_file(R"({"dtype":4})"), "dtype 4, expected a string"},
    {"ShapeText", tensor_file(R"({"shape":"2"})"), "the shape the text \"2\", expected a list"},
    {"ShapeNegative", tensor_file(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})", "x"),
     "has -1 in its shape, expected whole numbers from 0"},
    {"ShapeFraction", tensor_file(R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})", "x"),
     "has 1.0 in its shape"},
    {"ShapeExponent", tensor_file(R"({"dtype":"U8","shape":[1e0],"data_offsets":[0,1]})", "x"),
     "has 1e0 in its shape"},
    {"ShapeBeyondSigned", tensor_file(R"({"shape":[9223372036854775808]})"),
     "has 9223372036854775808 in its shape"},
    {"ShapeBeyond64Bits", tensor_file(R"({"shape":[18446744073709551616]})"),
     "has 18446744073709551616 in its shape"},
    {"ShapeTooManyDimensions",
     tensor_file(
         [] {
           std::string text = R"({"dtype":"U8","shape":[1)";
           for (int i = 0; i < 64; ++i) text += ",1";
           return text + R"(],"data_offsets":[0,1]})";
         }(),
         "x"),
     "more than 64 dimensions"},
    {"ShapeOverflow",
     tensor_file(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})"),
     "shape [4294967296, 4294967296], whose size overflows"},
    {"ShapeOverflowByElementSize",
     tensor_file(R"({"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]})"),
     "whose size overflows"},
    {"ShapeOverflowOfEmpty",
     tensor_file(R"({"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})"),
     "whose size overflows"},
    {"OffsetsOne", tensor_file(R"({"dtype":"U8","shape":[1],"data_offsets":[1]})", "x"),
     "has 1 data_offsets, expected two"},
    {"OffsetsThree", tensor_file(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1,2]})", "x"),
     "more than two data_offsets"},
    {"OffsetsNegative", tensor_file(R"({"data_offsets":[-5,1]})", "x"),
     "has -5 in its data_offsets"},
    {"OffsetsBackwards", tensor_file(R"({"dtype":"U8","shape":[1],"data_offsets":[1,0]})", "x"),
     "lies at bytes 1 to 0, expected a range within the file's 1 bytes"},
    {"OffsetsBeyondFile", tensor_file(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})", "x"),
     "within the file's 1 bytes of data; it was probably cut off"},
    {"OffsetsHuge",
     tensor_file(R"({"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]})", "x"),
     "lies at bytes 0 to 18446744073709551615"},
    {"HoleAtFront", tensor_file(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})", "xy"),
     "begins at byte 1, expected 0: tensors must follow each other without holes"},
    {"HoleBetween",
     raw_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
              R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
              "xyz"),
     "tensor \"b\" begins at byte 2, expected 1"},
    {"Overlap",
     raw_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
              R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
              "xyz"),
     "tensor \"b\" begins at byte 1, expected 2: tensors must follow each other without overlap"},
    {"SameBytesTwice",
     raw_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
              R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
              "x"),
     "without overlap"},
    {"BytesAfterTheLast", tensor_file(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})", "xy"),
     "it has 2 bytes of data, expected 1"},
    {"BytesWithoutTensors", raw_file("{}", "x"), "it has 1 bytes of data, expected 0"},
    {"SpanTooShortForShape",
     tensor_file(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,8]})", "12345678"),
     "tensor \"t\" has 8 bytes, expected 24 for F32 [2, 3]"},
    {"SpanForEmpty", tensor_file(R"({"dtype":"F32","shape":[0],"data_offsets":[0,4]})", "1234"),
     "tensor \"t\" has 4 bytes, expected 0 for F32 [0]"},
};

class HostileFiles : public ::testing::TestWithParam<HostileFile> {};

TEST_P(HostileFiles, AreRefusedWithASentence) {
  const std::string text =
      error_text([&] { parse_safetensors(as_bytes(GetParam().file), "bad.safetensors"); });
  expect_contains(text, "\"bad.safetensors\" is not a valid safetensors file: ");
  expect_contains(text, GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(Safetensors, HostileFiles, ::testing::ValuesIn(kHostileFiles),
                         [](const auto& hostile) { return hostile.param.name; });

TEST(HostileNames, AreShownOnOneShortLine) {
  const std::string name = R"(a\nb\u001b[31m)" + std::string(100'000, 'x');
  const std::string text =
      error_text([&] { parse_safetensors(as_bytes(raw_file("{\"" + name + "\":1}")), "f"); });
  expect_contains(text, R"("a\x0ab\x1b[31mxxx)");
  EXPECT_LT(text.size(), 400u);
}

}  // namespace
}  // namespace sape2::io::test
