#include "sape2/serve/server.h"

#include "sape2/components.h"
#include "sape2/error.h"

#if SAPE2_HAVE_SERVER

#include "sape2/in_quotes.h"

#include "serve/api.h"
#include "serve/connection.h"
#include "serve/page.h"
#include "serve/worker.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdio>

namespace sape2::serve {
namespace {

using httplib::Request;
using httplib::Response;

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

// The host of a Host header without its port.
std::string host_of(const std::string& header) {
  if (header.starts_with('[')) return header.substr(0, header.find(']') + 1);
  return header.substr(0, header.find(':'));
}

void refuse(Response& response, int status, const std::string& sentence) {
  response.status = status;
  response.set_content(nlohmann::json{{"error", sentence}}.dump(
                           -1, ' ', false, nlohmann::json::error_handler_t::replace) +
                           "\n",
                       "application/json");
  if (status == 503) response.set_header("Retry-After", "1");
}

// Bytes that a body may still take of what all bodies together may.
class Reservation {
 public:
  Reservation(std::atomic<std::size_t>& used, std::size_t bytes, std::size_t most)
      : used_(used), bytes_(bytes) {
    granted_ = used_.fetch_add(bytes_) + bytes_ <= most;
  }
  ~Reservation() { used_ -= bytes_; }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  bool granted() const { return granted_; }

 private:
  std::atomic<std::size_t>& used_;
  std::size_t bytes_;
  bool granted_ = false;
};

}  // namespace

bool can_serve() {
  return true;
}

struct Server::Parts {
  explicit Parts(ServerOptions given)
      : options(std::move(given)),
        loopback(is_loopback(options.host)),
        api(options.models, options.dataset ? &*options.dataset : nullptr, options.split,
            options.limits),
        worker(options.limits.waiting),
        http(options.limits) {
    add_headers();
    add_pages();
    add_api();
  }

  void add_headers();
  void add_pages();
  void add_api();
  void get(const std::string& path, Answer (Api::*work)(const Query&));
  void answer(Response& response, const std::function<Answer()>& work);
  void receive(const Request& request, Response& response, const httplib::ContentReader& reader);
  httplib::Server::HandlerResponse admit(const Request& request, Response& response) const;

  ServerOptions options;
  bool loopback;
  int port = 0;
  Api api;
  Worker worker;
  std::atomic<std::size_t> receiving = 0;
  BoundedServer http;
};

// Before a body is read: only what is known, and only for pages of our own.
httplib::Server::HandlerResponse Server::Parts::admit(const Request& request,
                                                      Response& response) const {
  using enum httplib::Server::HandlerResponse;
  const std::string host = request.get_header_value("Host");
  // Another site's name that was made to point here must not read what is kept here.
  if (loopback && !is_loopback(host_of(host))) {
    refuse(response, 403, "this server answers on its loopback address only");
    return Handled;
  }
  if (request.has_header("Origin") && request.get_header_value("Origin") != "http://" + host) {
    refuse(response, 403, "this server answers its own page only");
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
  http.set_default_headers(
      {{"X-Content-Type-Options", "nosniff"},
       {"Referrer-Policy", "no-referrer"},
       {"X-Frame-Options", "DENY"},
       {"Cache-Control", "no-store"},
       {"Content-Security-Policy",
        "default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'none'"}});
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

void Server::Parts::answer(Response& response, const std::function<Answer()>& work) {
  try {
    const Answer result = worker.run(work);
    response.set_content(result.body, result.type.c_str());
  } catch (const NotFound& error) {
    refuse(response, 404, error.what());
  } catch (const Error& error) {
    refuse(response, 400, error.what());
  } catch (const Busy& error) {
    refuse(response, 503, error.what());
  } catch (const std::bad_alloc&) {
    refuse(response, 503, "there is not enough memory for this now");
  }
}

void Server::Parts::get(const std::string& path, Answer (Api::*work)(const Query&)) {
  http.Get(path, [this, work](const Request& request, Response& response) {
    answer(response, [&] { return (api.*work)(request.params); });
  });
}

void Server::Parts::add_api() {
  http.Get("/api/setup", [this](const Request&, Response& response) {
    answer(response, [&] { return api.setup(); });
  });
  get("/api/picture", &Api::picture);
  get("/api/inspect", &Api::inspect);
  get("/api/rows", &Api::rows);
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
  const Reservation reservation(receiving, length, limits.uploads_in_flight);
  if (!reservation.granted()) {
    refuse(response, 503, "too many files are being received; try again in a moment");
    return;
  }
  std::string body;
  bool within = true;
  const bool whole = reader([&](const char* data, std::size_t size) {
    within = body.size() + size <= length;
    if (within) body.append(data, size);
    return within;
  });
  if (!within) return refuse(response, 413, too_large);
  if (!whole) return refuse(response, 400, "the file did not arrive whole");
  answer(response, [&] { return api.keep_image(body); });
}

Server::Server(ServerOptions options) {
  if (options.models.empty()) throw Error("there is no model to serve");
  parts_ = std::make_unique<Parts>(std::move(options));
  const ServerOptions& given = parts_->options;
  parts_->port = parts_->http.bind(given.host, given.port);
  if (parts_->port < 0) {
    throw Error(fmt::format(
        "cannot listen on {} port {}: it is in use, not allowed, or no address of this machine; "
        "choose another with --port or --host",
        in_quotes(given.host), given.port));
  }
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
