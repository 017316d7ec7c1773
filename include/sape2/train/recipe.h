#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sape2::train {

/// How a model is trained: everything but the model, the data and the seed. The keys of a recipe
/// file are the names of these members; what a file leaves out has the value given here.
struct Recipe {
  int64_t epochs = 100;
  int64_t passes = 1;        ///< times an epoch goes over the training images
  int64_t batch_size = 128;  ///< images of one optimiser step
  int64_t accumulation = 1;  ///< pieces a batch is worked through in, to need less memory

  std::string optimizer = "adamw";  ///< "adamw": decoupled decay; "adam": decay joins the gradient
  double learning_rate = 1e-3;      ///< after the warm-up
  double final_learning_rate = 0;   ///< where the cosine ends
  double warmup_epochs = 5;         ///< the rate grows linearly from 0; parts of an epoch allowed
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.05;         ///< on weights of linear layers and the patch embedding only
  double clip_norm = 0;               ///< largest norm of the whole gradient; 0: no clipping
  double ema_decay = 0;               ///< of the averaged weights that are evaluated; 0: no average
  std::string precision = "float32";  ///< "bfloat16" (GPU): with float32 master weights

  double label_smoothing = 0;
  double stochastic_depth = 0;  ///< probability of skipping a branch in the last layer
  double dropout = 0;           ///< after the embedding, the attention's projection, in the MLP

  int64_t crop_padding = 0;  ///< pixels of padding before a random crop; 0: no crop
  bool flip = false;         ///< mirrors left to right, with probability 1/2
  bool auto_augment = false;
  int64_t rand_augment_operations = 0;  ///< operations an image; 0: no RandAugment
  int64_t rand_augment_magnitude = 9;   ///< 0 … 30
  double mixup_alpha = 0;               ///< 0: no MixUp
  double cutmix_alpha = 0;              ///< 0: no CutMix; with MixUp: half of the mixed images
  double mix_probability = 1;           ///< share of images that are mixed at all
  double erase_probability = 0;         ///< of random erasing
  int64_t repeats = 1;                  ///< repeated augmentation: copies of an image in a batch
  double scale_low = 1;                 ///< segmentation: smallest factor a view is scaled by …
  double scale_high = 1;                ///< … and the largest; 1 and 1: no scaling
  double colour_jitter = 0;             ///< segmentation: strength of changes of colour; 0: none

  int64_t evaluate_epochs = 1;   ///< epochs from one evaluation to the next
  int64_t checkpoint_steps = 0;  ///< steps from one checkpoint to the next; 0: epochs' ends only
  int64_t log_steps = 20;        ///< steps from one line of the log to the next

  /// Throws Error with one sentence if values contradict each other.
  void validate() const;

  /// Sets the epochs; a warm-up longer than a quarter of them is shortened to a quarter.
  void train_for(int64_t number_of_epochs);

  bool operator==(const Recipe&) const = default;
};

/// Reads a recipe by the name of one that ships (`paper`, `strong`, `quick`, `segmentation`) or by
/// the path of a TOML file: whatever ends in ".toml" or contains a slash.
Recipe load_recipe(const std::string& name_or_file);

/// Reads TOML text; `source` names it in messages.
Recipe parse_recipe(std::string_view toml, std::string_view source);

/// The recipes that ship, by name, with their files: beside the installed program
/// (`../share/sape2/recipes`) or in the source tree it was built in.
struct ShippedRecipe {
  std::string name;
  std::filesystem::path file;
};
std::vector<ShippedRecipe> shipped_recipes();

}  // namespace sape2::train
