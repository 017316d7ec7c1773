#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <string>
#include <utility>
#include <vector>

/// A device without streams of its own, on which tests see which stream waits for which.
namespace sape2::ops::test {

inline c10::StreamId current_stream = 0;
inline std::vector<std::string> waits;  // "7 for 0"

template <c10::DeviceType Type>
struct NotingGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return Type; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {Type, -1}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  // Autograd starts no thread for it.
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }

  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_stream);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, stream.device(),
                       std::exchange(current_stream, stream.id()));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    delete static_cast<c10::StreamId*>(*event);
    *event = new c10::StreamId(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    waits.push_back(std::to_string(stream.id()) + " for " +
                    std::to_string(*static_cast<c10::StreamId*>(event)));
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<c10::StreamId*>(event);
  }
};

}  // namespace sape2::ops::test
