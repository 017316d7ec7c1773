#pragma once

#include "cli/command.h"

#include <memory>

/// What `sape2 bench` measures: make_<name>_benchmark() in <name>_benchmark.cpp, in a folder with
/// what it alone needs; `meters` is for all.
namespace sape2::cli {

std::unique_ptr<Command> make_attention_benchmark();
std::unique_ptr<Command> make_exchange_benchmark();
std::unique_ptr<Command> make_infer_benchmark();
std::unique_ptr<Command> make_train_benchmark();

}  // namespace sape2::cli
