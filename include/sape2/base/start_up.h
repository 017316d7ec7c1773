#pragma once

#include <string>
#include <vector>

namespace sape2::base {

/// Who decided on a setting.
enum class SetBy { sape2, user };

/// One setting of this process, as `sape2 info` shows it.
struct AppliedSetting {
  std::string variable;
  std::string value;
  SetBy set_by = SetBy::sape2;
  /// False if the library that reads it had already started: it then holds for child processes and
  /// after restart_if_late() only.
  bool in_time = true;
  std::string reason;
};

/// Sets what settings_for() asks for on this CPU, unless the user has set it. The program `sape2`
/// calls it before it loads LibTorch; libsape2_ops calls it when it is loaded itself. Not thread
/// safe, as no change of the environment is.
void settle_environment();

/// If a loaded OpenBLAS does not know this CPU and fell back to kernels with narrower vectors:
/// makes it use the right ones, unless the user has set OPENBLAS_CORETYPE. Called when libsape2_ops
/// is loaded.
void settle_blas();

/// What the two above have found and done.
std::vector<AppliedSetting> applied_settings();

/// For programs that link libsape2_ops and compute in several threads of their own: call it first
/// in main(). OpenMP reads its waiting policy before main() begins; if nobody has set one by then,
/// this starts the program once more in the same process, with the policy in its environment.
/// Does nothing if everything was in time.
void restart_if_late(char** arguments);

}  // namespace sape2::base
