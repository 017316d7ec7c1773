#pragma once

#include <span>

namespace sape2::io::test {

/// Parses any bytes as a safetensors file. A refusal by Error is fine (returns false); a file that
/// is taken must hold together and survive being written and read again (returns true). Aborts
/// otherwise. Shared by the mutation test and the libFuzzer target.
bool fuzz_one_input(std::span<const std::byte> input);

}  // namespace sape2::io::test
