#pragma once

#include <string>
#include <vector>

namespace sape2::nn {
class ViT;
}

namespace sape2::train {

struct RunConfig;

/// Gives a new model the weights of the model file that its run starts from (see nn::retrofit()).
/// Returns sentences that say what was kept, what is new, and whether the model still computes what
/// it did. Throws Error with one sentence if the file is missing, damaged, of another model size,
/// or not the one that the run was begun with.
std::vector<std::string> start_from_file(nn::ViT& model, const RunConfig& config);

}  // namespace sape2::train
