#pragma once

#include "sape2/data/dataset.h"
#include "sape2/explain/figure.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sape2::nn {
class ViT;
}

/// The local page of `sape2 serve`: a small HTTP server with its pages inside, and a JSON API over
/// explain::Inspection (docs/serve.md). It reads no file while it runs.
namespace sape2::serve {

/// What a client may ask for, and what the server keeps; all memory is bounded by these.
struct Limits {
  std::size_t body_bytes = std::size_t{8} << 20;  ///< of an uploaded file; its image has at most
                                                  ///< data::kMaxImagePixels
  std::size_t uploads_in_flight = std::size_t{64} << 20;   ///< bytes of all bodies being received
  std::size_t upload_memory = std::size_t{64} << 20;       ///< kept images; the oldest go first
  std::size_t inspection_memory = std::size_t{256} << 20;  ///< kept q and k; the oldest go first
  std::size_t answer_bytes = std::size_t{16} << 20;        ///< of one answer
  std::size_t answers_in_flight = std::size_t{128} << 20;  ///< bytes of all being sent
  std::int64_t patches = 64 * 64;                          ///< of one image
  std::size_t clients = 256;                               ///< connections at once
  std::size_t waiting = 256;  ///< requests for a thread, of those quickly answered and of others
  std::size_t header_bytes = std::size_t{32} << 10;
  std::chrono::milliseconds request_time{10'000};  ///< to send a request, and to take the answer
  std::chrono::milliseconds waiting_time{30'000};  ///< until a request's work begins
  std::chrono::milliseconds idle_time{15'000};     ///< between two requests of a connection; one
                                                   ///< second where all connections are taken
};

struct ServedModel {
  std::string name;
  std::shared_ptr<nn::ViT> model;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8322;  ///< 0: any free one
  std::vector<ServedModel> models;
  std::optional<data::Dataset> dataset;  ///< whose images can be picked
  std::string split = "test";
  Limits limits;
};

/// Whether this build has the server (the component "server").
bool can_serve();

class Server {
 public:
  /// Takes the port. Throws Error if it cannot be had, or this build has no server.
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  /// "http://127.0.0.1:8322/"
  std::string address() const;

  /// Answers until stop() is called, from any thread; then requests under way are given up and
  /// every connection is closed, in less than a second.
  void run();
  void stop();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sape2::serve
