#ifndef SAPE2_IMAGES_H
#define SAPE2_IMAGES_H

// PNG and JPEG files as bytes, for sape2_infer_run_images(): an optional companion of sape2_infer.h
// in a library of its own, which needs libpng and libjpeg.

#include "sape2_infer.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Reads a PNG or JPEG file of any kind as RGB: grey is repeated, palettes are looked up, 16 bits
/// are scaled to 8, transparent pixels are laid over white, CMYK is converted, and a JPEG is turned
/// as its EXIF orientation asks. Free the pixels with sape2_images_free().
SAPE2_INFER_API sape2_infer_status sape2_images_read(const char* path, sape2_infer_image* image);

/// The same from memory; messages call it `name`, null: "the image in memory".
SAPE2_INFER_API sape2_infer_status sape2_images_decode(const void* file, size_t bytes,
                                                       const char* name, sape2_infer_image* image);

/// Gives the pixels back and sets them to null. Only for images of the two functions above.
SAPE2_INFER_API void sape2_images_free(sape2_infer_image* image);

/// The sentence of the calling thread's last failure in these functions, "" before the first.
SAPE2_INFER_API const char* sape2_images_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
