#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sape2::nn {

/// A position encoding and its options as one string: `NAME[OPTION=VALUE,…]`, optionally `+ape`.
///
///     EncodingSpec::parse("sape2-k[ span=between, gain=-1.0 ] + ape").to_string()
///         == "sape2-k[span=between,gain=-1]+ape"
///
/// Two strings that mean the same encoding give equal specs: options are kept in their declared
/// order, defaults are dropped, numbers take their shortest form, and `none+ape` is `ape`.
class EncodingSpec {
 public:
  /// `none`.
  EncodingSpec();

  /// Throws Error with one sentence when `text` names no encoding, option or value.
  static EncodingSpec parse(std::string_view text);

  /// The encoding's name, without options and `+ape`.
  const std::string& name() const { return name_; }
  bool with_ape() const { return with_ape_; }

  /// Whether a learnt vector is added to each token: `ape` itself, or `+ape`.
  bool has_ape() const { return with_ape_ || name_ == "ape"; }
  /// The same encoding without that: `sape2-k` of `sape2-k+ape`, `none` of `ape`.
  EncodingSpec without_ape() const;

  /// The canonical string; parses back to an equal spec.
  std::string to_string() const;

  /// True if the option is written and differs from its default.
  bool has(std::string_view option) const;

  /// The value of an option of each kind, or its default. A number or integer whose default depends
  /// on the model is nothing when it is not written.
  const std::string& choice(std::string_view option) const;
  std::optional<double> number(std::string_view option) const;
  std::optional<int64_t> integer(std::string_view option) const;

  bool operator==(const EncodingSpec&) const = default;

 private:
  const std::string* value(std::string_view option) const;

  std::string name_;
  std::vector<std::pair<std::string, std::string>> options_;
  bool with_ape_ = false;
};

/// Splits `a,b[c=1,d=2]+ape` at the commas outside brackets and parses each part.
std::vector<EncodingSpec> parse_encoding_list(std::string_view text);

}  // namespace sape2::nn
