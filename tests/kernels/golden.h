#pragma once

#include "sape2/io/safetensors.h"

#include "reference.h"

#include <cstring>
#include <filesystem>
#include <string>

/// Golden cases as problems; see golden/README.md.
namespace sape2::kernels::testing {

class Golden {
 public:
  explicit Golden(const std::filesystem::path& path) : file_(io::SafetensorsFile::open(path)) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  std::string text(const std::string& key) const { return file_.metadata().at(key); }
  double number(const std::string& key) const { return std::stod(text(key)); }

  /// The tensor's elements, or none where the file lacks it.
  Array<double> array(const std::string& name) const {
    if (!has(name)) return {};
    const auto bytes = file_.at(name).bytes;
    Array<double> result(bytes.size() / sizeof(double));
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }

  Problem<double> problem() const {
    Problem<double> p;
    const auto shape = file_.at("q").shape;
    const bool cope = text("encoding") == "cope";
    p.shape = {shape[0], shape[1], 1, shape[2], 0, shape[3]};
    p.q = array("q"), p.k = array("k"), p.v = array("v"), p.dout = array("dout");
    p.scale = number("scale");
    p.inside = !cope && text("inside") == "True";
    p.positions = static_cast<int>(number("M"));
    if (cope) {
      p.gate_scale = {p.scale};
      p.k_x = array("e");
      return p;
    }
    p.shape.rows = static_cast<std::int64_t>(number("H"));
    p.shape.cols = static_cast<std::int64_t>(number("W"));
    p.shape.prefix = static_cast<std::int64_t>(number("P"));
    const std::string mode = text("mode");
    p.source = mode == "QK" || mode == "qk" ? Source::qk
               : mode == "Q" || mode == "q" ? Source::q
                                            : Source::k;
    p.span = text("span") == "suffix" ? Span::suffix : Span::between;
    p.form = text("form") == "distance" ? Form::distance : Form::direct;
    const bool both = p.source == Source::qk;
    p.q_x = array(both ? "exq" : "ex"), p.q_y = array(both ? "eyq" : "ey");
    p.k_x = array(both ? "exk" : "ex"), p.k_y = array(both ? "eyk" : "ey");
    p.tables_per_head = file_.at(both ? "exq" : "ex").shape.size() == 3;
    if (p.source == Source::q) p.k_x = p.k_y = {};
    if (p.source == Source::k) p.q_x = p.q_y = {};
    p.gate_scale = per_head("gate_scale", p.shape.heads);
    p.gate_offset = per_head("gate_offset", p.shape.heads);
    p.gain = per_head("gain", p.shape.heads);
    return p;
  }

 private:
  Array<double> per_head(const std::string& name, std::int64_t heads) const {
    if (has(name)) return array(name);
    return Array<double>(static_cast<std::size_t>(heads), number(name));
  }

  io::SafetensorsFile file_;
};

/// Every golden case of these kernels.
inline std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> result;
  for (const auto& entry : std::filesystem::directory_iterator(SAPE2_GOLDEN_DIR)) {
    if (entry.path().filename().string().starts_with("sape2_")) result.push_back(entry.path());
  }
  return result;
}

}  // namespace sape2::kernels::testing
