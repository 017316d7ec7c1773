#include "serve/admission.h"
#include "serve/lru_cache.h"
#include "serve/query.h"
#include "serve/request_head.h"

#include <gtest/gtest.h>

namespace sape2::serve {
namespace {

TEST(LruCache, DropsWhatWasNotUsedForLongest) {
  LruCache<int> cache(30);
  for (int i = 0; i < 3; ++i) cache.put(std::to_string(i), std::make_shared<int>(i), 10);
  EXPECT_EQ(*cache.find("0"), 0);
  cache.put("3", std::make_shared<int>(3), 10);
  EXPECT_EQ(cache.find("1"), nullptr);
  EXPECT_NE(cache.find("0"), nullptr);
  EXPECT_EQ(cache.bytes(), 30U);
  cache.put("0", std::make_shared<int>(9), 5);
  EXPECT_EQ(cache.bytes(), 25U);
  cache.put("large", std::make_shared<int>(1), 100);
  EXPECT_EQ(cache.size(), 1U);
}

TEST(Query, IsReadAsItStandsInAnAddress) {
  const Query query = parse_query("image=data%3A3&what=bias&empty=&bare&text=a+b%2Bc%zz%");
  EXPECT_EQ(*value_of(query, "image"), "data:3");
  EXPECT_EQ(*value_of(query, "empty"), "");
  EXPECT_EQ(*value_of(query, "bare"), "");
  EXPECT_EQ(*value_of(query, "text"), "a b+c%zz%");
  EXPECT_EQ(value_of(query, "other"), nullptr);
  EXPECT_TRUE(parse_query("").empty());
}

TEST(Admission, TakesTheAddressesOfThisMachine) {
  const Admission admission("127.0.0.1", /*only_here=*/true, 8322);
  for (const char* host : {"127.0.0.1:8322", "127.255.0.9:8322", "localhost:8322", "[::1]:8322"}) {
    EXPECT_TRUE(admission.accepts_host(host)) << host;
  }
  for (const char* host : {"",
                           ":8322",
                           "127.0.0.1",
                           "127.0.0.1:",
                           "127.0.0.1:08322",
                           "127.0.0.1:8322 ",
                           "127.0.0.1:83",
                           "127.0.0.1.evil.com:8322",
                           "127.evil.com:8322",
                           "127.0.0.01:8322",
                           "127.0.0:8322",
                           "127.0.0.1.1:8322",
                           "127.0.0.256:8322",
                           "0x7f.0.0.1:8322",
                           "2130706433:8322",
                           "128.0.0.1:8322",
                           "0.0.0.0:8322",
                           "localhost.:8322",
                           "localhost.evil.com:8322",
                           "[::1:8322",
                           "[::1]evil.com:8322",
                           "[::1]",
                           "::1:8322",
                           "[::ffff:127.0.0.1]:8322",
                           "user@127.0.0.1:8322",
                           "192.168.1.5:8322",
                           "my-machine:8322"}) {
    EXPECT_FALSE(admission.accepts_host(host)) << host;
  }
}

TEST(Admission, ThePortMayBeAbsentWhereItIsTheStandardOne) {
  const Admission admission("127.0.0.1", true, 80);
  EXPECT_TRUE(admission.accepts_host("127.0.0.1"));
  EXPECT_TRUE(admission.accepts_host("127.0.0.1:80"));
  EXPECT_FALSE(admission.accepts_host("127.0.0.1:8080"));
  EXPECT_EQ(
      admission.refusal(
          {.method = "GET", .path = "/", .host = "127.0.0.1:80", .origin = "http://127.0.0.1"}),
      "");
}

// Addresses cannot be rebound, names can.
TEST(Admission, AServerForOthersTakesAnyAddressAndItsOwnName) {
  const Admission everywhere("0.0.0.0", false, 8322), named("My-Machine.lan", false, 8322);
  for (const Admission* admission : {&everywhere, &named}) {
    for (const char* host : {"192.168.1.5:8322", "[fe80::1]:8322", "localhost:8322"}) {
      EXPECT_TRUE(admission->accepts_host(host)) << host;
    }
    for (const char* host : {"evil.example:8322", "192.168.1.5.evil.example:8322", "192.168.1.5"}) {
      EXPECT_FALSE(admission->accepts_host(host)) << host;
    }
  }
  EXPECT_TRUE(named.accepts_host("my-machine.lan:8322"));
  EXPECT_FALSE(everywhere.accepts_host("my-machine.lan:8322"));
}

TEST(RequestHead, PassesOnWhatItUnderstands) {
  const CheckedHead head = check_head(
      "GET /api/rows?y=1 HTTP/1.1\r\nHost: localhost:1\r\nRANGE: bytes=0-\r\nX: y\r\n"
      "If-Range: z\r\nAccept-Encoding: br\r\nSec-Fetch-Site:  none \r\n\r\n");
  EXPECT_EQ(head.status, 0);
  EXPECT_EQ(head.text,
            "GET /api/rows?y=1 HTTP/1.1\r\nHost: localhost:1\r\nX: y\r\n"
            "Sec-Fetch-Site:  none \r\n\r\n");
  EXPECT_EQ(head.source.method, "GET");
  EXPECT_EQ(head.source.path, "/api/rows");
  EXPECT_EQ(head.source.host, "localhost:1");
  EXPECT_EQ(head.source.fetch_site, "none");
}

// Nothing is read past the end of what is given, however it is cut.
TEST(RequestHead, EveryPartOfAHeadIsRefused) {
  const std::string whole = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n";
  EXPECT_EQ(check_head(whole).status, 0);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(check_head(std::string_view(whole).substr(0, length)).status, 0) << length;
  }
}

}  // namespace
}  // namespace sape2::serve
