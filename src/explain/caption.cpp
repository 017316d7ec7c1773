#include "sape2/explain/caption.h"

#include "sape2/nn/encoding_definition.h"

#include <fmt/format.h>

#include <cmath>

namespace sape2::explain {
namespace {

// Positions that leave an even spacing by no more than this part of a step are called plain.
constexpr double kPlainBend = 0.1;
// Gates that differ by no more than this are called alike.
constexpr double kAlikeGates = 0.05;
constexpr double kClampedToTell = 0.001;  // of all positions

bool is_mean(const Look& look, const Selection& selection) {
  return (!selection.layer && look.layers() > 1) || (!selection.head && look.heads() > 1);
}

std::string of_axis(What what) {
  if (what == What::bias_x) return "This is the part of the bias that comes from the rows. ";
  if (what == What::bias_y) return "This is the part of the bias that comes from the columns. ";
  return "";
}

std::string distance_text(double factor, double most) {
  if (factor == 0) return "The gain is 0: this distance changes nothing.";
  return fmt::format(
      "Far patches {} (far by their axis vectors, not by their place). The farthest pair here, {} "
      "apart, gets {}; "
      "a patch itself gets +0 (×1).",
      factor > 0 ? "gain attention: the distance is added to the logits"
                 : "lose attention: the gain is negative, so the distance is taken off the logits",
      number_text(most, 2), effect_text(factor * most));
}

std::string signed_text(double factor, const Extent& extent) {
  if (factor == 0) return "The gain is 0: this bias changes nothing.";
  const double raised = factor * (factor > 0 ? extent.most : extent.least);
  const double lowered = factor * (factor > 0 ? extent.least : extent.most);
  const char* up = factor > 0 ? "Orange" : "Blue";
  const char* down = factor > 0 ? "blue" : "orange";
  if (raised <= 0)
    return fmt::format("All lose attention: from {} to {}.", effect_text(lowered),
                       effect_text(raised));
  if (lowered >= 0)
    return fmt::format("All gain attention: from {} to {}.", effect_text(lowered),
                       effect_text(raised));
  return fmt::format("{} patches gain attention, {} ones lose it: from {} to {}.", up, down,
                     effect_text(lowered), effect_text(raised));
}

std::vector<std::string> bias_captions(const Look& look, What what, const Selection& selection,
                                       const Extent& extent) {
  const bool distance = look.scale_kind(what) == ScaleKind::distance;
  const LogitFactor factor = look.logit_factor(selection);
  std::vector<std::string> sentences;
  if (factor.is_one()) {
    sentences.push_back(of_axis(what) + (distance ? distance_text(factor.low, extent.most)
                                                  : signed_text(factor.low, extent)));
  } else {
    sentences.push_back(fmt::format(
        "{}The gain is learnt: one unit of this {} adds between {} and {} logits, depending on "
        "layer and head{}. Choose one layer and one head to see what is added.",
        of_axis(what), distance ? "distance" : "bias", number_text(factor.low, 2),
        number_text(factor.high, 2),
        factor.low < 0 && factor.high > 0
            ? ", so it raises attention in some and lowers it in others"
            : ""));
  }
  if (is_mean(look, selection)) {
    sentences.push_back("The map is a mean; single layers and heads are stronger.");
  }
  return sentences;
}

std::vector<std::string> attention_captions(const Look& look, const Extent& extent) {
  std::vector<std::string> sentences;
  const infer::Grid& grid = look.grid();
  sentences.push_back(
      fmt::format("How a patch shares out its attention, 100 % in all{}. If all patches were "
                  "alike, each would get {:.2g} %; the largest here is {:.2g} %.",
                  grid.prefix > 0 ? ", what goes to class token and registers included" : "",
                  100.0 / static_cast<double>(grid.tokens()), 100 * extent.most));
  if (!look.offers(What::bias)) {
    const nn::EncodingSpec& spec = look.config().encoding;
    sentences.push_back(fmt::format(
        "The encoding {} ({}) adds no bias to the logits, so it shows in the attention only.",
        spec.to_string(), nn::encoding_definition(spec.name()).summary));
  }
  return sentences;
}

std::string most_bent_text(const Look& look, const Selection& selection,
                           const GateSummary& summary) {
  if (!is_mean(look, selection)) return "";
  return fmt::format(" Layer {}, head {} depends on the image most: up to {} patches.",
                     *summary.most_bent.layer + 1, *summary.most_bent.head + 1,
                     number_text(summary.most_bend, 2));
}

std::string gates_text(const GateSummary& summary) {
  return fmt::format("gates of {:.2f} on average (standard deviation {:.2f})", summary.mean,
                     summary.deviation);
}

std::string positions_caption(const Look& look, const Selection& selection) {
  const GateSummary summary = look.gate_summary(selection);
  const std::string spacing = fmt::format("{:.2f} per patch", summary.spacing);
  const std::string bend = number_text(std::max(0.01, summary.bend), 1);
  const std::string most = most_bent_text(look, selection, summary);
  if (summary.bend <= kPlainBend * summary.spacing) {
    return fmt::format(
        "These positions are nearly plain offsets, {} to within {} patches: the image hardly "
        "shows in them. They are sums of {}.{}",
        spacing, bend, gates_text(summary), most);
  }
  return fmt::format(
      "These positions depend on the image: seen from all its patches, they leave an even spacing "
      "({}) by up to {} patches. They are sums of {}.{}",
      spacing, number_text(summary.bend, 2), gates_text(summary), most);
}

std::string gates_caption(const Look& look, const Selection& selection) {
  const GateSummary summary = look.gate_summary(selection);
  const bool alike = summary.deviation <= kAlikeGates;
  return fmt::format(
      "How much each patch{} counts as a step: 1 in full, 0 not at all. Here {}{}.{}",
      look.offers(What::bias_x) ? " of the same row and column" : "", gates_text(summary),
      alike ? ", nearly all alike: the image hardly shows in them" : "",
      most_bent_text(look, selection, summary));
}

}  // namespace

std::string number_text(double value, int digits) {
  const double shown = std::abs(value) < 1e-12 ? 0 : value;
  return fmt::format("{}{:.{}g}", shown < 0 ? "−" : "", std::abs(shown), digits);
}

std::string factor_text(double logits) {
  const double factor = std::exp(logits);
  // Two digits that matter: near 1 they are those behind the point.
  if (factor >= 1e4 || factor < 1e-3) return fmt::format("×{:.0e}", factor);
  if (factor >= 9.95) return fmt::format("×{:.0f}", factor);
  if (factor >= 1.995) return fmt::format("×{:.1f}", factor);
  return factor >= 0.095 ? fmt::format("×{:.2f}", factor) : fmt::format("×{:.2g}", factor);
}

std::string effect_text(double logits) {
  return fmt::format("{}{:.2f} logits ({})", logits < 0 ? "−" : "+", std::abs(logits),
                     factor_text(logits));
}

std::vector<std::string> captions(const Look& look, What what, const Selection& selection,
                                  const Extent& extent) {
  switch (what) {
    case What::gates:
      return {gates_caption(look, selection)};
    case What::positions:
      return {positions_caption(look, selection)};
    case What::attention:
      return attention_captions(look, extent);
    default:
      return bias_captions(look, what, selection, extent);
  }
}

std::string reading_text(ScaleKind kind, const std::optional<double>& logit_factor) {
  const double factor = logit_factor.value_or(0);
  switch (kind) {
    case ScaleKind::distance:
      if (factor == 0) return "dark is far";
      return factor > 0 ? "dark is far and gains attention" : "dark is far and loses attention";
    case ScaleKind::balanced:
      if (factor == 0) return "the sign of the gain says what gains attention";
      return factor > 0 ? "orange gains attention, blue loses it"
                        : "blue gains attention, orange loses it";
    case ScaleKind::share:
      return "dark gets much attention";
    case ScaleKind::gate:
      return "dark gates are open; grey: there is no gate";
  }
  return "";
}

std::optional<std::string> clamp_warning(const Look& look) {
  const double share = look.clamped_share();
  if (share < kClampedToTell) return std::nullopt;
  const nn::ViTConfig& vit = look.config().vit;
  return fmt::format(
      "The tables clamp: this grid has {}×{} patches, the model was trained on {}×{}. {:.0f} % of "
      "the positions lie beyond the end of its tables and all read the last row, so stripes and "
      "flat areas can come from the tables, not from the image.",
      look.grid().rows, look.grid().cols, vit.rows(), vit.cols(), std::max(1.0, 100 * share));
}

}  // namespace sape2::explain
