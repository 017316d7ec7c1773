#pragma once

#include "sape2/data/image.h"
#include "sape2/data/shapes.h"
#include "sape2/nn/vit.h"
#include "sape2/serve/server.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sape2::serve::test {

/// Seconds in which the server stops: on a machine of its own (see support/own_time.h), and on one
/// that others keep as busy as can be.
inline constexpr double kLongestStop = 2, kLongestStopAnywhere = 30;

/// A small model whose parameters are drawn from a seed.
inline ServedModel small_model(const std::string& encoding,
                               const std::string& task = nn::kClassification) {
  nn::ModelConfig config;
  config.task = task;
  config.vit.depth = 2;
  config.vit.width = 32;
  config.vit.heads = 2;
  config.vit.mlp_ratio = 1;
  config.encoding = nn::EncodingSpec::parse(encoding);
  auto model = std::make_shared<nn::ViT>(config);
  model->eval();
  return {encoding, std::move(model)};
}

/// A server with two models and the data set `shapes`, on any port, while it lives.
class Served {
 public:
  explicit Served(const Limits& limits = {},
                  std::vector<ServedModel> models = {small_model("sape2-k+ape"),
                                                     small_model("rope2d")})
      : server_({.port = 0,
                 .models = std::move(models),
                 .dataset = data::make_shapes({.split = data::Split::test, .count = 20}).dataset,
                 .limits = limits}),
        thread_([this] { server_.run(); }) {}
  ~Served() { stop(); }

  void stop() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }
  int port() const { return server_.port(); }
  /// The line that a request needs.
  std::string host_line() const { return "Host: 127.0.0.1:" + std::to_string(port()) + "\r\n"; }

 private:
  Server server_;
  std::thread thread_;
};

struct Reply {
  int status = 0;  ///< 0: no answer
  std::string head, body;

  nlohmann::json json() const { return nlohmann::json::parse(body); }
  std::string error() const { return json().value("error", ""); }
};

/// A connection on which anything can be sent.
class RawClient {
 public:
  explicit RawClient(int port);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool send(const std::string& bytes);
  /// One answer, of the length that its head tells; status 0 where the connection ends before.
  Reply receive();
  /// Whether the other side closes within so many milliseconds.
  bool closed_within(int milliseconds);

 private:
  int socket_ = -1;
  std::string rest_;
};

Reply get(int port, const std::string& path, const std::string& more_headers = "");
Reply post(int port, const std::string& path, const std::string& body,
           const std::string& more_headers = "");

/// A PNG file of noise.
std::string png_file(std::int64_t height, std::int64_t width);

}  // namespace sape2::serve::test
