#include "sape2/infer/inspection.h"

#include "capi/objects.h"

using namespace sape2;
using namespace sape2::capi;

namespace {

template <class Number>
const Number* array_of(const std::vector<Number>& numbers) {
  return numbers.empty() ? nullptr : numbers.data();
}

sape2_infer_axis axis_of(const infer::AxisRows& axis) {
  return {array_of(axis.gates), array_of(axis.positions), array_of(axis.clamped),
          array_of(axis.bias)};
}

}  // namespace

sape2_infer_status sape2_infer_inspection_new(sape2_infer_session* session,
                                              const sape2_infer_batch* image,
                                              sape2_infer_inspection** inspection) {
  return guarded(SAPE2_INFER_BAD_ARGUMENT, [&] {
    const auto object = behind<SessionObject>(session);
    const infer::ImageBatch batch = batch_of(image);
    check_given(inspection, "inspection");
    const Held held(*object);
    auto made = std::make_shared<InspectionObject>();
    made->inspection = std::make_unique<infer::Inspection>(*object->session, batch);
    hand_out(std::move(made), inspection);
  });
}

sape2_infer_status sape2_infer_inspection_free(sape2_infer_inspection* inspection) {
  return guarded(SAPE2_INFER_INTERNAL, [&] { free_object<InspectionObject>(inspection); });
}

sape2_infer_status sape2_infer_inspection_rows(sape2_infer_inspection* inspection, int64_t layer,
                                               const int64_t* patches, size_t count,
                                               sape2_infer_rows* rows) {
  return guarded(SAPE2_INFER_BAD_ARGUMENT, [&] {
    const auto object = behind<InspectionObject>(inspection);
    check_given(patches, "patches");
    check_struct(rows, "rows");
    const Held held(*object);
    const infer::Inspection& seen = *object->inspection;
    object->rows = seen.rows(layer, {patches, count});
    const infer::AttentionRows& found = object->rows;
    rows->heads = seen.heads();
    rows->rows = seen.grid().rows;
    rows->cols = seen.grid().cols;
    rows->prefix = seen.grid().prefix;
    rows->attention = array_of(found.attention);
    rows->bias = array_of(found.bias);
    rows->logit_factor = array_of(found.logit_factor);
    rows->x = axis_of(found.x);
    rows->y = axis_of(found.y);
    rows->gates = array_of(found.gates);
    rows->positions = array_of(found.positions);
    rows->is_distance = found.is_distance ? 1 : 0;
  });
}
