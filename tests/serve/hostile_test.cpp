// What no well-meaning browser sends.
#include "sape2/error.h"

#include "serve/served.h"

#include <gtest/gtest.h>

#include <chrono>

namespace sape2::serve::test {
namespace {

using std::chrono::milliseconds;

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
  for (const std::string& bytes :
       {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("\0\x01\x02\xff\r\n\r\n", 9),
        "GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nA: " + std::string(20000, 'b') + "\r\n\r\n",
        std::string("POST /api/images HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n"),
        std::string("POST /api/images HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                    "Transfer-Encoding: chunked\r\n\r\nZZZZ\r\n")}) {
    RawClient client(served.port());
    client.send(bytes);
    const Reply reply = client.receive();
    EXPECT_TRUE(reply.status == 0 || reply.status >= 400) << reply.head;
    EXPECT_TRUE(client.closed_within(12'000));
  }
  std::string endless = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n";
  for (int i = 0; i < 300'000; ++i)
    endless += "X-" + std::to_string(i) + ": " + std::string(40, 'y') + "\r\n";
  RawClient client(served.port());
  client.send(endless);
  client.send("\r\n");
  client.receive();
  EXPECT_EQ(get(served.port(), "/api/setup").status, 200);
}

TEST(Hostile, OnlyGetAndUploads) {
  const Served served;
  EXPECT_EQ(post(served.port(), "/api/setup", "{}").status, 405);
  EXPECT_EQ(post(served.port(), "/", "{}").status, 405);
  RawClient client(served.port());
  client.send("DELETE /api/images HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(client.receive().status, 405);
}

TEST(Hostile, OtherSitesAreRefused) {
  const Served served;
  RawClient client(served.port());
  client.send("GET /api/setup HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(client.receive().status, 403);
  EXPECT_EQ(
      post(served.port(), "/api/images", png_file(4, 4), "Origin: http://evil.example\r\n").status,
      403);
  EXPECT_EQ(post(served.port(), "/api/images", png_file(4, 4),
                 "Origin: http://127.0.0.1:" + std::to_string(served.port()) + "\r\n")
                .status,
            200);
}

TEST(Hostile, LargeAndCorruptUploads) {
  Limits limits;
  limits.body_bytes = 100'000;
  const Served served(limits);
  const Reply large = post(served.port(), "/api/images", std::string(5'000'000, 'x'));
  EXPECT_EQ(large.status, 413);
  RawClient chunked(served.port());
  chunked.send(
      "POST /api/images HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n");
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
    held.back()->send("GET /api/setup HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    EXPECT_EQ(held.back()->receive().status, 200);
  }
  EXPECT_EQ(get(served.port(), "/api/setup").status, 503);
  held.clear();
  int status = 0;
  for (int i = 0; i < 50 && status != 200; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
    status = get(served.port(), "/api/setup").status;
  }
  EXPECT_EQ(status, 200);
}

TEST(Hostile, StopsWhileClientsHang) {
  Served served;
  RawClient silent(served.port()), half(served.port());
  half.send("POST /api/images HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nabc");
  std::this_thread::sleep_for(milliseconds(100));
  const auto begin = std::chrono::steady_clock::now();
  served.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
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
