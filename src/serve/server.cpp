#include "sape2/serve/server.h"

#include "sape2/base/error.h"
#include "sape2/components.h"

#if SAPE2_HAVE_SERVER

#include "sape2/base/in_quotes.h"
#include "sape2/base/interruption.h"

#include "serve/admission.h"
#include "serve/answer.h"
#include "serve/api.h"
#include "serve/bounded_server.h"
#include "serve/page.h"
#include "serve/reservation.h"
#include "serve/workers.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>

namespace sape2::serve {
namespace {

using httplib::Request;
using httplib::Response;

void refuse(Response& response, int status, const std::string& sentence) {
  response.status = status;
  response.set_content(error_body(sentence), "application/json");
  if (status == 503) response.set_header("Retry-After", "1");
}

}  // namespace

bool can_serve() {
  return true;
}

// Quick work, one thread each, is never behind long work, which has most of LibTorch's threads.
struct Server::Parts {
  explicit Parts(ServerOptions given)
      : options(std::move(given)),
        api(options.models, options.dataset ? &*options.dataset : nullptr, options.split,
            options.limits),
        cores(at::get_num_threads()),
        long_threads(std::clamp(cores / 4, 1, 4)),
        quick(workers(std::clamp(cores, 2, 4), 1)),
        lengthy(workers(long_threads, cores / long_threads)),
        http(options.limits) {
    at::set_num_threads(cores);  // for threads to come, as it was
    add_headers();
    add_pages();
    add_api();
  }

  Workers::Options workers(int threads, int torch_threads) const;
  void bind();
  void add_headers();
  void add_pages();
  void add_api();
  void get(const std::string& path, Answer (Api::*work)(const Query&));
  bool takes_long(const Request& request) const;
  void answer(Response& response, Workers& workers, const std::string& key, Workers::Work work);
  void receive(const Request& request, Response& response, const httplib::ContentReader& reader);
  httplib::Server::HandlerResponse admit(const Request& request, Response& response) const;

  ServerOptions options;
  int port = 0;
  std::optional<Admission> admission;  // once the port is known
  Api api;
  int cores, long_threads;
  Workers quick, lengthy;
  std::atomic<std::size_t> receiving = 0, answering = 0;
  BoundedServer http;
};

// LibTorch counts threads for each thread that calls it: the first call takes the common number,
// the second is this thread's own.
Workers::Options Server::Parts::workers(int threads, int torch_threads) const {
  return {.threads = static_cast<std::size_t>(threads),
          .most_waiting = options.limits.waiting,
          .longest_wait = options.limits.waiting_time,
          .prepare = [torch_threads] {
            at::get_num_threads();
            at::set_num_threads(torch_threads);
          }};
}

void Server::Parts::bind() {
  errno = 0;
  port = http.bind(options.host, options.port);
  if (port < 0 && errno == EADDRINUSE) {
    throw Error(fmt::format("port {} of {} is in use; choose another with --port (0: any free one)",
                            options.port, in_quotes(options.host)));
  }
  if (port < 0) {
    throw Error(fmt::format(
        "cannot listen on {} port {}: it is not allowed, or no address of this machine; "
        "choose another with --port or --host",
        in_quotes(options.host), options.port));
  }
  admission.emplace(options.host, http.listens_only_here(), port);
}

// Before a body is read: only what is known, and only for pages of our own.
httplib::Server::HandlerResponse Server::Parts::admit(const Request& request,
                                                      Response& response) const {
  using enum httplib::Server::HandlerResponse;
  const std::string refusal = admission->refusal(BoundedServer::current().source());
  if (!refusal.empty()) {
    refuse(response, 403, refusal);
    return Handled;
  }
  const bool upload = request.method == "POST" && request.path == "/api/images";
  if (!upload && request.method != "GET" && request.method != "HEAD") {
    refuse(response, 405, "this address takes GET only");
    return Handled;
  }
  return Unhandled;
}

void Server::Parts::add_headers() {
  httplib::Headers headers;
  for (const auto& header : protective_headers()) headers.insert(header);
  http.set_default_headers(headers);
  http.set_pre_routing_handler(
      [this](const Request& request, Response& response) { return admit(request, response); });
  http.set_error_handler([](const Request&, Response& response) {
    if (!response.body.empty()) return;
    const int status = response.status;
    refuse(response, status,
           status == 404   ? "there is nothing at this address"
           : status == 413 ? "the file is larger than allowed"
                           : "the request is not understood");
  });
  http.set_exception_handler([](const Request&, Response& response, std::exception_ptr) {
    refuse(response, 500, "the server could not answer");
  });
}

void Server::Parts::add_pages() {
  for (const PageFile& file : page_files()) {
    http.Get(file.path, [&file](const Request&, Response& response) {
      response.set_content(file.content.data(), file.content.size(), file.type);
    });
  }
}

void Server::Parts::answer(Response& response, Workers& workers, const std::string& key,
                           Workers::Work work) {
  Connection& connection = BoundedServer::current();
  const Limits& limits = options.limits;
  try {
    const auto result = workers.run(key, std::move(work), connection);
    const std::size_t size = result->body.size();
    if (size > limits.answer_bytes) {
      throw Error(fmt::format("the answer would be larger than the {} MiB allowed",
                              limits.answer_bytes >> 20));
    }
    const auto room = std::make_shared<Reservation>(answering, size, limits.answers_in_flight);
    if (!room->granted()) throw Busy("too many answers are being sent; try again in a moment");
    connection.hold(room);
    response.set_content(result->body, result->type);
  } catch (const NotFound& error) {
    refuse(response, 404, error.what());
  } catch (const Error& error) {
    refuse(response, 400, error.what());
  } catch (const Busy& error) {
    refuse(response, 503, error.what());
  } catch (const Interrupted&) {
    refuse(response, 503, "the server stops, or the connection was closed");
  } catch (const std::bad_alloc&) {
    refuse(response, 503, "there is not enough memory for this now");
  }
}

bool Server::Parts::takes_long(const Request& request) const {
  try {
    return request.path == "/api/figure" || request.path == "/api/mask" ||
           api.takes_long(request.params);
  } catch (const Error&) {
    return false;  // to say so takes no time
  }
}

void Server::Parts::get(const std::string& path, Answer (Api::*work)(const Query&)) {
  http.Get(path, [this, work](const Request& request, Response& response) {
    answer(response, takes_long(request) ? lengthy : quick, request.target,
           [this, work, query = request.params] { return (api.*work)(query); });
  });
}

void Server::Parts::add_api() {
  http.Get("/api/setup", [this](const Request& request, Response& response) {
    answer(response, quick, request.target, [this] { return api.setup(); });
  });
  get("/api/picture", &Api::picture);
  get("/api/inspect", &Api::inspect);
  get("/api/rows", &Api::rows);
  get("/api/mask", &Api::mask);
  get("/api/pixel", &Api::pixel);
  get("/api/figure", &Api::figure);
  http.Post("/api/images",
            [this](const Request& request, Response& response,
                   const httplib::ContentReader& reader) { receive(request, response, reader); });
}

void Server::Parts::receive(const Request& request, Response& response,
                            const httplib::ContentReader& reader) {
  const Limits& limits = options.limits;
  const std::string too_large =
      fmt::format("the file is larger than the {} MiB allowed", limits.body_bytes >> 20);
  if (request.has_header("Content-Encoding") || request.is_multipart_form_data()) {
    refuse(response, 415, "send the PNG or JPEG file itself as the body");
    return;
  }
  // A body of unknown length may become as large as any.
  std::size_t length = limits.body_bytes;
  if (request.has_header("Content-Length")) {
    length = request.get_header_value<std::uint64_t>("Content-Length");
  }
  if (length > limits.body_bytes) {
    refuse(response, 413, too_large);
    return;
  }
  const auto room = std::make_shared<Reservation>(receiving, length, limits.uploads_in_flight);
  if (!room->granted()) {
    refuse(response, 503, "too many files are being received; try again in a moment");
    return;
  }
  // The work keeps the body and its room, as it may outlive this call.
  const auto body = std::make_shared<std::string>();
  bool within = true;
  const bool whole = reader([&](const char* data, std::size_t size) {
    within = body->size() + size <= length;
    if (within) body->append(data, size);
    return within;
  });
  if (!within) return refuse(response, 413, too_large);
  if (!whole) return refuse(response, 400, "the file did not arrive whole");
  answer(response, lengthy, "", [this, body, room] { return api.keep_image(*body); });
}

Server::Server(ServerOptions options) {
  if (options.models.empty()) throw Error("there is no model to serve");
  parts_ = std::make_unique<Parts>(std::move(options));
  parts_->bind();
}

Server::~Server() = default;

int Server::port() const {
  return parts_->port;
}

std::string Server::address() const {
  const std::string& host = parts_->options.host;
  const bool six = host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}/", six ? "[" + host + "]" : host, parts_->port);
}

void Server::run() {
  parts_->http.run();
}

void Server::stop() {
  parts_->http.stop_all();
}

}  // namespace sape2::serve

#else

namespace sape2::serve {

struct Server::Parts {};

bool can_serve() {
  return false;
}

Server::Server(ServerOptions) {
  throw Error("this build has no server: install libcpp-httplib-dev and build again");
}
Server::~Server() = default;
int Server::port() const {
  return 0;
}
std::string Server::address() const {
  return "";
}
void Server::run() {}
void Server::stop() {}

}  // namespace sape2::serve

#endif
