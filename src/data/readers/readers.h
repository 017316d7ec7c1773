#pragma once

#include "sape2/data/dataset.h"

#include <filesystem>
#include <string>
#include <vector>

/// The formats behind load_dataset(), one file each. `folder` is where the data set's own files
/// lie. Tests read small files by passing layouts with other counts.
namespace sape2::data {

/// CIFAR's binary layout: records of labels and 3 × 32 × 32 bytes, without a header.
struct CifarLayout {
  std::string name;
  std::vector<std::string> train_files, test_files;
  std::int64_t records_a_file_train, records_a_file_test;
  std::int64_t label_bytes;  ///< the last of them is the class
  std::string names_file;
  std::vector<std::string> class_names;
  Normalisation normalisation;

  const std::vector<std::string>& files(Split split) const {
    return split == Split::train ? train_files : test_files;
  }
  std::int64_t records_a_file(Split split) const {
    return split == Split::train ? records_a_file_train : records_a_file_test;
  }
};

const CifarLayout& cifar10_layout();
const CifarLayout& cifar100_layout();
Dataset read_cifar(const CifarLayout& layout, const std::filesystem::path& folder, Split split);

/// IDX files of MNIST's kind, gzipped or plain: images and labels apart.
struct IdxLayout {
  std::string name;
  std::int64_t train_images, test_images, height, width;
  std::vector<std::string> class_names;
  Normalisation normalisation;

  std::int64_t images(Split split) const {
    return split == Split::train ? train_images : test_images;
  }
};

const IdxLayout& fashion_mnist_layout();
Dataset read_idx(const IdxLayout& layout, const std::filesystem::path& folder, Split split);

/// The two files of a split, without ".gz".
std::string idx_images_file(Split split);
std::string idx_labels_file(Split split);

/// Class folders of PNG and JPEG files: train/CLASS/… with test/ or val/ beside it, or CLASS/…
/// alone, then split by a seeded draw.
Dataset read_folder(const std::filesystem::path& folder, Split split, const LoadOptions& options);

/// A folder of images and one of masks with the same names: images/ and masks/, or those in train/
/// and in test/ or val/. classes.txt names the classes.
Dataset read_masked_folder(const std::filesystem::path& folder, Split split,
                           const LoadOptions& options);

/// Oxford-IIIT Pet: images/NAME.jpg, and trimaps/NAME.png, trainval.txt and test.txt, in
/// annotations/ as the official archive has them or beside images/. Images are stretched to a
/// square.
enum class PetsClasses { breeds, species };
Dataset read_pets(const std::filesystem::path& folder, Split split, PetsClasses classes,
                  const LoadOptions& options);

/// Whether a folder looks like that.
bool holds_pets(const std::filesystem::path& folder);

/// Refuses a folder whose lists have other lengths, or which lacks a file that they name.
struct PetsCounts {
  std::int64_t train = 3'680, test = 3'669;
};
void check_pets(const std::filesystem::path& folder, const PetsCounts& expected = {});

/// Refuses names that no model can hold (see nn::check_class_names); `where` they were found.
void check_class_names(const std::vector<std::string>& names, const std::filesystem::path& where);

/// Refuses labels outside of the classes and classes without an image.
void check_labels(const Dataset& dataset, const std::filesystem::path& where);

}  // namespace sape2::data
