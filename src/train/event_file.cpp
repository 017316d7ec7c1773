#include "train/event_file.h"

#include "sape2/io/crc32c.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <chrono>

namespace sape2::train {
namespace {

// Ours, because TensorBoard's writer comes with TensorFlow or Python only, and five fields need no
// generated code. Protocol buffers: a field is its number and wire type, then the value.
enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

template <typename T>
void put_little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
}

void put_key(std::string& out, uint64_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<uint64_t>(wire));
}

void put_double(std::string& out, uint64_t field, double value) {
  put_key(out, field, Wire::fixed64);
  put_little_endian(out, std::bit_cast<uint64_t>(value));
}

void put_float(std::string& out, uint64_t field, double value) {
  put_key(out, field, Wire::fixed32);
  put_little_endian(out, std::bit_cast<uint32_t>(static_cast<float>(value)));
}

void put_integer(std::string& out, uint64_t field, int64_t value) {
  put_key(out, field, Wire::varint);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  put_key(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Field numbers of Event, Summary, Summary.Value and SessionLog in TensorFlow's event.proto.
constexpr uint64_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr uint64_t kValue = 1, kTag = 1, kSimpleValue = 2;
constexpr uint64_t kStatus = 1;
constexpr int64_t kStart = 1;

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = io::crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xA282EAD8u;
}

double now() {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

// The name must hold "tfevents"; time and process make it unlike those of earlier sessions.
std::filesystem::path file_name() {
  return fmt::format("events.out.tfevents.{:.6f}.{}", now(), ::getpid());
}

}  // namespace

std::string tf_record(std::string_view bytes) {
  std::string length, record;
  put_little_endian(length, static_cast<uint64_t>(bytes.size()));
  record = length;
  put_little_endian(record, masked_crc(length));
  record += bytes;
  put_little_endian(record, masked_crc(bytes));
  return record;
}

std::string version_event(double wall_time) {
  std::string event;
  put_double(event, kWallTime, wall_time);
  put_bytes(event, kFileVersion, "brain.Event:2");
  return event;
}

std::string session_start_event(double wall_time, int64_t step) {
  std::string log, event;
  put_integer(log, kStatus, kStart);
  put_double(event, kWallTime, wall_time);
  put_integer(event, kStep, step);
  put_bytes(event, kSessionLog, log);
  return event;
}

std::string scalars_event(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary, event;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, kTag, tag);
    put_float(value, kSimpleValue, number);
    put_bytes(summary, kValue, value);
  }
  put_double(event, kWallTime, wall_time);
  put_integer(event, kStep, step);
  put_bytes(event, kSummary, summary);
  return event;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step)
    : file_(folder / file_name()) {
  file_.append(tf_record(version_event(now())));
  file_.append(tf_record(session_start_event(now(), first_step)));
}

void EventFile::add(int64_t step, const Scalars& scalars) {
  file_.append(tf_record(scalars_event(now(), step, scalars)));
}

}  // namespace sape2::train
