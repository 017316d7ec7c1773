#include "sape2/base/error.h"

#include "data/images/codecs.h"

#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstdio>

namespace sape2::data {
namespace {

// A progressive JPEG of a few kilobytes may ask for thousands of passes over the whole image.
constexpr int kMaxScans = 200;

// libjpeg leaves by longjmp: nothing with a destructor lives between setjmp and its calls.
struct JpegState {
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";
  bool too_large = false;
  bool too_many_scans = false;
  int orientation = 1;
  bool whole = true;  // damage is a failure
  bool inverted_cmyk = false;
  Image image;
};

extern "C" {
void jpeg_fail(j_common_ptr common) {
  auto* state = static_cast<JpegState*>(common->client_data);
  common->err->format_message(common, state->message);
  std::longjmp(state->jump, 1);
}

// Damage that libjpeg would paint over with grey is a failure; oddities are not.
void jpeg_note(j_common_ptr common, int level) {
  if (level >= 0 || !static_cast<JpegState*>(common->client_data)->whole) return;
  switch (common->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
      jpeg_fail(common);
      break;
    default:
      break;
  }
}

void jpeg_silence(j_common_ptr) {}

void jpeg_watch_scans(j_common_ptr common) {
  if (!common->is_decompressor) return;
  auto* state = static_cast<JpegState*>(common->client_data);
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number > kMaxScans) {
    state->too_many_scans = true;
    std::longjmp(state->jump, 1);
  }
}
}

int orientation_of(const jpeg_decompress_struct& jpeg) {
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker; marker = marker->next) {
    if (marker->marker != JPEG_APP0 + 1) continue;
    const int found = exif_orientation({marker->data, marker->data_length});
    if (found != 1) return found;
  }
  return 1;
}

bool read_all(jpeg_decompress_struct& jpeg, std::span<const std::uint8_t> bytes, JpegState& state) {
  if (setjmp(state.jump)) return false;
  jpeg_create_decompress(&jpeg);
  jpeg.progress = &state.progress;
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&jpeg, TRUE);
  state.image.height = jpeg.image_height;
  state.image.width = jpeg.image_width;
  if (static_cast<std::uint64_t>(jpeg.image_height) * jpeg.image_width > kMaxImagePixels) {
    state.too_large = true;
    return false;
  }
  state.orientation = orientation_of(jpeg);
  const bool four = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = four ? JCS_CMYK : JCS_RGB;
  state.inverted_cmyk = jpeg.saw_Adobe_marker;
  jpeg.dct_method = JDCT_ISLOW;
  jpeg_start_decompress(&jpeg);
  state.image.channels = jpeg.output_components;
  const std::size_t stride = static_cast<std::size_t>(jpeg.output_width) * jpeg.output_components;
  state.image.pixels.resize(stride * jpeg.output_height);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = state.image.pixels.data() + jpeg.output_scanline * stride;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

// Adobe's programs store the complement of each ink.
void inks_to_rgb(Image& image, bool inverted) {
  const std::size_t count = image.pixels.size() / 4;
  const std::uint8_t* in = image.pixels.data();
  std::uint8_t* out = image.pixels.data();
  const int flip = inverted ? 0 : 255;
  for (std::size_t i = 0; i < count; ++i, in += 4, out += 3) {
    const int light = in[3] ^ flip;
    for (int c = 0; c < 3; ++c) {
      out[c] = static_cast<std::uint8_t>(((in[c] ^ flip) * light + 127) / 255);
    }
  }
  image.pixels.resize(count * 3);
  image.channels = 3;
}

}  // namespace

Image decode_jpeg(std::span<const std::uint8_t> bytes, const DecodeOptions& options) {
  JpegState state;
  state.whole = options.whole;
  jpeg_decompress_struct jpeg{};
  jpeg.err = jpeg_std_error(&state.errors);
  jpeg.client_data = &state;
  state.errors.error_exit = jpeg_fail;
  state.errors.emit_message = jpeg_note;
  state.errors.output_message = jpeg_silence;
  state.progress.progress_monitor = jpeg_watch_scans;
  bool done = false;
  try {
    done = read_all(jpeg, bytes, state);
  } catch (...) {
    jpeg_destroy_decompress(&jpeg);
    throw;
  }
  jpeg_destroy_decompress(&jpeg);
  if (state.too_large) check_image_size(state.image.height, state.image.width);
  if (state.too_many_scans) throw Error("the JPEG has more scans than an honest file needs");
  if (!done) throw Error(std::string("damaged JPEG (") + state.message + ")");
  if (state.image.channels == 4) inks_to_rgb(state.image, state.inverted_cmyk);
  return oriented(std::move(state.image), options.oriented ? state.orientation : 1);
}

}  // namespace sape2::data
