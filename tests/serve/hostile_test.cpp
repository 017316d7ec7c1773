// What no well-meaning browser sends.
#include "sape2/base/error.h"

#include "serve/served.h"
#include "support/own_time.h"

#include <gtest/gtest.h>

#include <chrono>

namespace sape2::serve::test {
namespace {

using std::chrono::milliseconds;

/// Whether the server, which may be full, gives an answer in that time.
bool answers_within(const Served& served, milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(50));
    if (get(served.port(), "/api/setup").status == 200) return true;
  }
  return false;
}

TEST(Hostile, WrongValuesAreNamed) {
  const Served served;
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"/api/rows", "lacks \"model\""},
      {"/api/rows?model=7&image=data:0&y=0&x=0", "\"model\" is \"7\""},
      {"/api/rows?model=-1&image=data:0&y=0&x=0", "\"model\""},
      {"/api/rows?model=0&y=0&x=0", "lacks \"image\""},
      {"/api/rows?model=0&image=data:0&y=0", "lacks \"x\""},
      {"/api/rows?model=0&image=data:0&y=8&x=0", "no patch 8,0"},
      {"/api/rows?model=0&image=data:0&y=1e9&x=0", "\"y\" is"},
      {"/api/rows?model=0&image=data:0&y=0&x=0&what=biass", "nearest"},
      {"/api/rows?model=0&image=data:0&y=0&x=0&layer=9", "no layer 9"},
      {"/api/rows?model=0&image=data:0&y=0&x=0&head=0", "\"head\""},
      {"/api/rows?model=0&image=data:0&y=0&x=0&size=99999999", "\"size\""},
      {"/api/figure?model=0&image=data:0&format=exe", "\"format\""}};
  for (const auto& [path, part] : wrong) {
    const Reply reply = get(served.port(), path);
    EXPECT_EQ(reply.status, 400) << path;
    EXPECT_NE(reply.error().find(part), std::string::npos) << path << ": " << reply.body;
  }
  EXPECT_EQ(get(served.port(), "/api/picture?image=data:20").status, 404);
  EXPECT_EQ(get(served.port(), "/api/inspect?model=0&image=abcdef").status, 404);
}

TEST(Hostile, NothingIsReadFromTheDisk) {
  const Served served;
  for (const char* path :
       {"/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd",
        "/style.css/../../../etc/passwd", "/app.js%00.html", "/.git/config", "/api/../setup"}) {
    const Reply reply = get(served.port(), path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_EQ(reply.body.find("root:"), std::string::npos) << path;
  }
  for (const char* image : {"../../etc/passwd", "/etc/passwd", "data:../1", "file:///etc/passwd",
                            "%2e%2e%2fetc%2fpasswd"}) {
    const Reply reply = get(served.port(), std::string("/api/picture?image=") + image);
    EXPECT_TRUE(reply.status == 404 || reply.status == 400) << image;
  }
}

TEST(Hostile, MalformedRequestsEndTheirConnectionOnly) {
  const Served served;
  const std::string host = served.host_line(), get = "GET / HTTP/1.1\r\n" + host;
  const std::string upload = "POST /api/images HTTP/1.1\r\n" + host;
  const std::vector<std::pair<int, std::string>> malformed{
      {400, "\r\n\r\n"},
      {400, "GET\r\n\r\n"},
      {505, "GET / HTTP/9.9\r\n" + host + "\r\n"},
      {400, std::string("\0\x01\x02\xff\r\n\r\n", 8)},
      {414, "GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n" + host + "\r\n"},
      {400, "GET http://127.0.0.1/ HTTP/1.1\r\n" + host + "\r\n"},
      {431, get + "A: " + std::string(20000, 'b') + "\r\n\r\n"},
      {400, get + "A : b\r\n\r\n"},
      {400, get + " folded\r\n\r\n"},
      {400, get + "A: b\nC: d\r\n\r\n"},
      {400, get + host + "\r\n"},
      {400, "GET / HTTP/1.1\r\n\r\n"},
      {400, get + "Content-Length: 5\r\n\r\nabcde"},
      {400, get + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {400, upload + "Content-Length: -5\r\n\r\n"},
      {400, upload + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"},
      {400, upload + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {400, upload + "Transfer-Encoding: gzip\r\n\r\n"},
      {400, upload + "Transfer-Encoding: chunked\r\n\r\nZZZZ\r\n"}};
  for (const auto& [status, bytes] : malformed) {
    RawClient client(served.port());
    client.send(bytes);
    const Reply reply = client.receive();
    EXPECT_EQ(reply.status, status) << bytes.substr(0, 200) << reply.head;
    EXPECT_NE(reply.head.find("Cross-Origin-Resource-Policy: same-origin"), std::string::npos);
    EXPECT_TRUE(client.closed_within(12'000));
  }
  EXPECT_EQ(test::get(served.port(), "/api/setup").status, 200);
}

TEST(Hostile, AHeadIsOfBoundedLength) {
  const Served served;
  std::string endless = "GET / HTTP/1.1\r\n" + served.host_line();
  for (int i = 0; i < 300'000; ++i)
    endless += "X-" + std::to_string(i) + ": " + std::string(40, 'y') + "\r\n";
  RawClient client(served.port());
  client.send(endless);
  client.send("\r\n");
  client.receive();
  std::string many = "GET / HTTP/1.1\r\n" + served.host_line();
  for (int i = 0; i < 200; ++i) many += "X-" + std::to_string(i) + ": y\r\n";
  RawClient second(served.port());
  second.send(many + "\r\n");
  EXPECT_EQ(second.receive().status, 431);
  EXPECT_EQ(get(served.port(), "/api/setup").status, 200);
}

TEST(Hostile, OnlyGetAndUploads) {
  const Served served;
  EXPECT_EQ(post(served.port(), "/api/setup", "{}").status, 405);
  EXPECT_EQ(post(served.port(), "/", "{}").status, 405);
  RawClient client(served.port());
  client.send("DELETE /api/images HTTP/1.1\r\n" + served.host_line() + "Content-Length: 0\r\n\r\n");
  EXPECT_EQ(client.receive().status, 405);
}

// 2,700 ranges of one picture were 8 GB of answer.
TEST(Hostile, RangesAreIgnored) {
  const Served served;
  const std::string name = post(served.port(), "/api/images", png_file(256, 256)).json()["image"];
  const std::string path = "/api/picture?image=" + name;
  const std::string whole = get(served.port(), path).body;
  ASSERT_GT(whole.size(), 100'000U);
  std::string many = "Range: bytes=0-";
  for (int i = 0; i < 2000; ++i) many += ",0-";
  for (const std::string& range :
       {std::string("Range: bytes=0-9"), many, std::string("Range: bytes=9-0"),
        std::string("Range: nonsense"), std::string("range: bytes=99999999999999999999-"),
        std::string("Range: bytes=0-9\r\nIf-Range: \"x\"")}) {
    const Reply reply = get(served.port(), path, range + "\r\n");
    EXPECT_EQ(reply.status, 200) << range.substr(0, 60);
    EXPECT_EQ(reply.body, whole) << range.substr(0, 60);
  }
}

TEST(Hostile, AnswersAreOfBoundedSize) {
  Limits limits;
  limits.answer_bytes = 2000;
  const Served one(limits);
  const Reply large = get(one.port(), "/api/figure?model=0&image=data:0&what=bias");
  EXPECT_EQ(large.status, 400);
  EXPECT_NE(large.error().find("larger than"), std::string::npos);
  limits = {};
  limits.answers_in_flight = 2000;
  const Served all(limits);
  const Reply busy = get(all.port(), "/api/figure?model=0&image=data:0&what=bias");
  EXPECT_EQ(busy.status, 503);
  EXPECT_NE(busy.head.find("Retry-After: 1"), std::string::npos);
  EXPECT_EQ(get(all.port(), "/api/picture?image=data:21").status, 404);  // small enough
}

TEST(Hostile, LargeAndCorruptUploads) {
  Limits limits;
  limits.body_bytes = 100'000;
  const Served served(limits);
  const Reply large = post(served.port(), "/api/images", std::string(5'000'000, 'x'));
  EXPECT_EQ(large.status, 413);
  RawClient chunked(served.port());
  chunked.send("POST /api/images HTTP/1.1\r\n" + served.host_line() +
               "Transfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 40; ++i) chunked.send("1000\r\n" + std::string(4096, 'x') + "\r\n");
  chunked.send("0\r\n\r\n");
  EXPECT_GE(chunked.receive().status, 400);
  EXPECT_EQ(post(served.port(), "/api/images", "no image").status, 400);
  const std::string png = png_file(50, 50);
  const Reply torn = post(served.port(), "/api/images", png.substr(0, png.size() / 2));
  EXPECT_EQ(torn.status, 400);
  EXPECT_NE(torn.error().find("damaged"), std::string::npos) << torn.body;
  EXPECT_EQ(post(served.port(), "/api/images", "").status, 400);
  EXPECT_EQ(post(served.port(), "/api/images", png, "Content-Encoding: gzip\r\n").status, 415);
  EXPECT_EQ(post(served.port(), "/api/images", png).status, 200);
}

TEST(Hostile, SlowClientsAreCutOff) {
  Limits limits;
  limits.request_time = milliseconds(300);
  limits.idle_time = milliseconds(400);
  const Served served(limits);
  RawClient silent(served.port()), slow(served.port());
  for (int i = 0; i < 12; ++i) {  // a byte now and then does not help
    if (!slow.send(i == 0 ? "GET / HT" : "T")) break;
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_TRUE(slow.closed_within(2000));
  EXPECT_TRUE(silent.closed_within(2000));
  EXPECT_EQ(get(served.port(), "/api/setup").status, 200);
}

TEST(Hostile, MoreClientsThanAllowedAreToldSo) {
  Limits limits;
  limits.clients = 3;
  const Served served(limits);
  std::vector<std::unique_ptr<RawClient>> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(std::make_unique<RawClient>(served.port()));
    held.back()->send("GET /api/setup HTTP/1.1\r\n" + served.host_line() + "\r\n");
    EXPECT_EQ(held.back()->receive().status, 200);
  }
  EXPECT_EQ(get(served.port(), "/api/setup").status, 503);
  held.clear();
  EXPECT_TRUE(answers_within(served, milliseconds(2500)));
}

// Who holds a connection and asks for nothing makes room where all are taken.
TEST(Hostile, IdleClientsMakeRoom) {
  Limits limits;
  limits.clients = 3;
  const Served served(limits);
  std::vector<std::unique_ptr<RawClient>> held;
  for (int i = 0; i < 3; ++i) held.push_back(std::make_unique<RawClient>(served.port()));
  held.back()->send("GET /api/se");                         // slowly
  EXPECT_TRUE(answers_within(served, milliseconds(8000)));  // otherwise only after 10 s
}

// More than there are threads to say so.
TEST(Hostile, AnyNumberOfConnectionsIsSurvived) {
  Limits limits;
  limits.clients = 3;
  Served served(limits);
  std::vector<std::unique_ptr<RawClient>> held;
  for (int i = 0; i < 300; ++i) held.push_back(std::make_unique<RawClient>(served.port()));
  for (int i = 100; i < 300; ++i)
    EXPECT_TRUE(held[static_cast<std::size_t>(i)]->closed_within(5000));
  held.clear();
  EXPECT_TRUE(answers_within(served, milliseconds(2500)));
}

TEST(Hostile, StopsWhileClientsHang) {
  Served served;
  RawClient silent(served.port()), half(served.port());
  half.send("POST /api/images HTTP/1.1\r\n" + served.host_line() +
            "Content-Length: 100\r\n\r\nabc");
  std::this_thread::sleep_for(milliseconds(100));
  const testing::OwnTime stop;
  served.stop();
  EXPECT_LT(stop.seconds(), kLongestStop);
  EXPECT_LT(stop.wall_seconds(), kLongestStopAnywhere);
}

TEST(Hostile, APortInUseIsNamed) {
  const Served served;
  try {
    Server second({.port = served.port(), .models = {small_model("none")}});
    FAIL() << "two servers on one port";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--port"), std::string::npos);
  }
}

}  // namespace
}  // namespace sape2::serve::test
