#pragma once

#include "sape2/infer/inspection.h"
#include "sape2/infer/model.h"
#include "sape2/infer/session.h"

#include "capi/handles.h"
#include "capi/status.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

/// What lies behind the handles of sape2_infer.h.
namespace sape2::capi {

struct ModelObject {
  explicit ModelObject(infer::Model opened);

  infer::Model model;
  std::string encoding;
  std::vector<std::string> class_names;  ///< one for each class, always
};

/// Threads of the caller.
class CallersThreads final : public kernels::Executor {
 public:
  CallersThreads(sape2_infer_parallel_for function, void* context)
      : function_(function), context_(context) {}
  void parallel_for(std::int64_t count, const Body& body) const override;

 private:
  sape2_infer_parallel_for function_;
  void* context_;
};

struct SessionObject {
  std::atomic<bool> in_use = false;
  std::unique_ptr<CallersThreads> threads;  ///< outlives the session
  std::unique_ptr<infer::Session> session;
  std::vector<float> pixels;  ///< of pictures, prepared
};

struct InspectionObject {
  std::atomic<bool> in_use = false;
  std::unique_ptr<infer::Inspection> inspection;
  infer::AttentionRows rows;  ///< what the last call answered
};

template <class Object>
struct HandleName;
template <>
struct HandleName<ModelObject> {
  static constexpr const char* text = "model";
};
template <>
struct HandleName<SessionObject> {
  static constexpr const char* text = "session";
};
template <>
struct HandleName<InspectionObject> {
  static constexpr const char* text = "inspection";
};

/// The object behind a handle; throws a Failure if there is none.
template <class Object, class Handle>
std::shared_ptr<Object> behind(const Handle* handle) {
  check_given(handle, HandleName<Object>::text);
  auto object = Handles<Object>::all().find(reinterpret_cast<std::uintptr_t>(handle));
  if (!object) {
    throw Failure(SAPE2_INFER_BAD_HANDLE, std::string("there is no such ") +
                                              HandleName<Object>::text +
                                              ": it was freed, or never was one");
  }
  return object;
}

template <class Object, class Handle>
void hand_out(std::shared_ptr<Object> object, Handle** handle) {
  // A handle is a number that looks like a pointer, never one to follow.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  *handle = reinterpret_cast<Handle*>(Handles<Object>::all().insert(std::move(object)));
}

template <class Object, class Handle>
void free_object(const Handle* handle) {
  if (handle == nullptr) return;
  if (!Handles<Object>::all().take(reinterpret_cast<std::uintptr_t>(handle))) {
    throw Failure(SAPE2_INFER_BAD_HANDLE, std::string("the ") + HandleName<Object>::text +
                                              " cannot be freed: it was freed before, or never "
                                              "was one");
  }
}

/// Holds an object for one call. Throws a Failure if another call does so.
template <class Object>
class Held {
 public:
  explicit Held(Object& object) : object_(object) {
    if (object.in_use.exchange(true)) {
      throw Failure(SAPE2_INFER_BUSY,
                    std::string("another call is using this ") + HandleName<Object>::text +
                        "; give each thread one of its own, they share the model");
    }
  }
  ~Held() { object_.in_use = false; }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  Object& object_;
};

/// A batch of the caller's, once it has been looked at.
infer::ImageBatch batch_of(const sape2_infer_batch* images);

}  // namespace sape2::capi
