// Requests that a page from elsewhere makes a browser send.
#include "serve/served.h"

#include <gtest/gtest.h>

namespace sape2::serve::test {
namespace {

TEST(OtherSites, AreRefused) {
  const Served served;
  const std::string port = ":" + std::to_string(served.port());
  const auto status_for = [&](const std::string& headers) {
    RawClient client(served.port());
    client.send("GET /api/setup HTTP/1.1\r\n" + headers + "\r\n");
    return client.receive().status;
  };
  for (const std::string& host : {"127.0.0.1" + port, "localhost" + port, "LOCALHOST" + port,
                                  "[::1]" + port, "127.3.2.1" + port}) {
    EXPECT_EQ(status_for("Host: " + host + "\r\n"), 200) << host;
    EXPECT_EQ(status_for("Host: " + host + "\r\nOrigin: http://" + host + "\r\n"), 200) << host;
  }
  for (const std::string& host :
       {"evil.example" + port, "127.0.0.1.evil.com" + port, "127.evil.com" + port,
        "127.0.0.1%00.evil.com" + port, std::string("127.0.0.1"), std::string("127.0.0.1:1"),
        "127.0.0.1" + port + "0", "127.0.0.1" + port + ".evil.com", "localhost.evil.com" + port,
        "[::1].evil.com" + port, "[::2]" + port, "127.1" + port, "10.0.0.1" + port}) {
    EXPECT_EQ(status_for("Host: " + host + "\r\n"), 403) << host;
    EXPECT_EQ(status_for("Host: " + host + "\r\nOrigin: http://" + host + "\r\n"), 403) << host;
  }
  for (const std::string& origin :
       {std::string("null"), std::string("http://evil.example"), "https://127.0.0.1" + port,
        std::string("http://127.0.0.1:1"), std::string("http://127.0.0.1"),
        "http://localhost" + port, "http://127.0.0.2" + port, "http://127.0.0.1" + port + "/",
        "127.0.0.1" + port}) {
    EXPECT_EQ(status_for(served.host_line() + "Origin: " + origin + "\r\n"), 403) << origin;
    EXPECT_EQ(
        post(served.port(), "/api/images", png_file(4, 4), "Origin: " + origin + "\r\n").status,
        403)
        << origin;
  }
  EXPECT_EQ(
      post(served.port(), "/api/images", png_file(4, 4), "Origin: http://127.0.0.1" + port + "\r\n")
          .status,
      200);
}

TEST(OtherSites, MayOpenThePageAndNothingElse) {
  const Served served;
  const auto status_of = [&](const std::string& path, const std::string& site,
                             const std::string& more = "") {
    return get(served.port(), path, "Sec-Fetch-Site: " + site + "\r\n" + more).status;
  };
  const std::string opened = "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
  const std::string framed = "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n";
  for (const char* site : {"cross-site", "same-site", "anything"}) {
    EXPECT_EQ(status_of("/", site, opened), 200) << site;  // a link that the user followed
    EXPECT_EQ(status_of("/", site, framed), 403) << site;
    EXPECT_EQ(status_of("/", site), 403) << site;
    for (const char* path : {"/app.js", "/api/setup", "/api/picture?image=data:0"}) {
      EXPECT_EQ(status_of(path, site), 403) << site << path;
      EXPECT_EQ(status_of(path, site, opened), 403) << site << path;
    }
    EXPECT_EQ(post(served.port(), "/api/images", png_file(4, 4),
                   std::string("Sec-Fetch-Site: ") + site + "\r\n" + opened)
                  .status,
              403)
        << site;
  }
  for (const char* site : {"same-origin", "none"}) {
    EXPECT_EQ(status_of("/api/setup", site), 200) << site;
  }
}

TEST(OtherSites, AreKeptFromEveryAnswer) {
  const Served served;
  for (const char* path : {"/", "/app.js", "/api/setup", "/api/picture?image=data:0", "/nothing"}) {
    const Reply reply = get(served.port(), path);
    for (const char* header :
         {"Cross-Origin-Resource-Policy: same-origin", "Cross-Origin-Opener-Policy: same-origin",
          "X-Content-Type-Options: nosniff", "Referrer-Policy: no-referrer",
          "X-Frame-Options: DENY", "frame-ancestors 'none'"}) {
      EXPECT_NE(reply.head.find(header), std::string::npos) << path << ": " << header;
    }
  }
}

}  // namespace
}  // namespace sape2::serve::test
