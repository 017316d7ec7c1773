#include "data/get/download.h"

#include "sape2/base/error.h"
#include "sape2/base/in_quotes.h"
#include "sape2/components.h"

#include "data/get/md5.h"
#include "data/text.h"

#include <fmt/format.h>

#if SAPE2_HAVE_DOWNLOAD
#include <curl/curl.h>
#endif

#include <cstdio>
#include <memory>
#include <system_error>

namespace sape2::data {
namespace fs = std::filesystem;

#if !SAPE2_HAVE_DOWNLOAD

void download(const RemoteFile&, const fs::path&, GetObserver&) {
  throw Error("this build cannot download: install libcurl4-openssl-dev and build again");
}

#else

namespace {

constexpr int kAttempts = 5;

std::uint64_t size_or_zero(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

// One transfer into the partial file, from where it ends.
struct Transfer {
  const RemoteFile& file;
  GetObserver& observer;
  std::FILE* output;
  std::uint64_t done;
  bool too_large = false;
  bool disk_full = false;
};

extern "C" size_t take_bytes(char* bytes, size_t size, size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  const std::size_t total = size * count;
  if (transfer.done + total > transfer.file.bytes) {
    transfer.too_large = true;
    return 0;
  }
  if (std::fwrite(bytes, 1, total, transfer.output) != total) {
    transfer.disk_full = true;
    return 0;
  }
  transfer.done += total;
  transfer.observer.progress(transfer.file.name, transfer.done, transfer.file.bytes);
  return total;
}

bool is_worth_another_try(CURLcode code) {
  switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

CURLcode run_transfer(Transfer& transfer, std::string& reason) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (initialised != CURLE_OK) return initialised;
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  if (!curl) return CURLE_OUT_OF_MEMORY;
  char message[CURL_ERROR_SIZE] = "";
  const char* protocol = transfer.file.url.starts_with("https:") ? "https" : "http";
  curl_easy_setopt(curl.get(), CURLOPT_URL, transfer.file.url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, protocol);
  curl_easy_setopt(curl.get(), CURLOPT_REDIR_PROTOCOLS_STR, protocol);
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_MAXREDIRS, 5L);
  curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, 15L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, 100L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, 30L);
  curl_easy_setopt(curl.get(), CURLOPT_USERAGENT, "sape2");
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, message);
  curl_easy_setopt(curl.get(), CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(transfer.done));
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, take_bytes);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &transfer);
  const CURLcode code = curl_easy_perform(curl.get());
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  reason = *message ? message : curl_easy_strerror(code);
  // The server cannot go on where we stopped.
  return code == CURLE_HTTP_RETURNED_ERROR && status == 416 ? CURLE_RANGE_ERROR : code;
}

[[noreturn]] void fail(const RemoteFile& file, const std::string& reason) {
  throw Error(fmt::format("cannot download {}: {}", file.url, reason));
}

// Appends to the partial file until it is whole.
void complete(const RemoteFile& file, const fs::path& partial, GetObserver& observer) {
  std::string reason;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (size_or_zero(partial) > file.bytes) fs::remove(partial);
    const std::uint64_t before = size_or_zero(partial);
    if (before == file.bytes) return;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(std::fopen(partial.c_str(), "ab"),
                                                                 std::fclose);
    if (!output) fail(file, fmt::format("{} cannot be written", in_quotes(partial)));
    Transfer transfer{file, observer, output.get(), before};
    const CURLcode code = run_transfer(transfer, reason);
    const bool flushed = std::fflush(output.get()) == 0;
    if (transfer.disk_full || !flushed) {
      fail(file, fmt::format("{} cannot be written (is the disk full?)", in_quotes(partial)));
    }
    if (transfer.too_large) {
      fs::remove(partial);
      fail(file, fmt::format("it is larger than the {} bytes expected", grouped(file.bytes)));
    }
    if (code == CURLE_RANGE_ERROR) {
      fs::resize_file(partial, 0);
      continue;
    }
    if (code == CURLE_OK) {
      if (transfer.done == file.bytes) return;
      reason =
          fmt::format("it ended after {} of {} bytes", grouped(transfer.done), grouped(file.bytes));
    } else if (!is_worth_another_try(code)) {
      break;
    }
  }
  fail(file, reason);
}

}  // namespace

void download(const RemoteFile& file, const fs::path& target, GetObserver& observer) {
  fs::path partial = target;
  partial += ".part";
  const bool resumed = size_or_zero(partial) > 0;
  complete(file, partial, observer);
  std::string md5 = md5_of_file(partial);
  if (md5 != file.md5 && resumed) {
    // The first part may have come from another version of the file.
    observer.note(fmt::format("{} does not fit together; fetching it anew", file.name));
    fs::remove(partial);
    complete(file, partial, observer);
    md5 = md5_of_file(partial);
  }
  if (md5 != file.md5) {
    fs::remove(partial);
    fail(file, fmt::format("its MD5 is {}, expected {}", md5, file.md5));
  }
  fs::rename(partial, target);
}

#endif

}  // namespace sape2::data
