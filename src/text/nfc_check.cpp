// NFC is looked for by a pattern of the characters that it may change.
#include "text/nfc_check.h"

#include <fmt/format.h>

#include <string>

#include "core/error.h"

namespace rooflm::text {
namespace {

/// Characters whose NFC_Quick_Check is No or Maybe (Unicode 14.0.0, DerivedNormalizationProps.txt).
constexpr const char* kUnsure =
    R"(\x{300}-\x{304}\x{306}-\x{30c}\x{30f}\x{311}\x{313}-\x{314}\x{31b}\x{323}-\x{328}\x{32d}-\x{32e})"
    R"(\x{330}-\x{331}\x{338}\x{340}-\x{345}\x{374}\x{37e}\x{387}\x{653}-\x{655}\x{93c}\x{958}-\x{95f})"
    R"(\x{9be}\x{9d7}\x{9dc}-\x{9dd}\x{9df}\x{a33}\x{a36}\x{a59}-\x{a5b}\x{a5e}\x{b3e}\x{b56}-\x{b57})"
    R"(\x{b5c}-\x{b5d}\x{bbe}\x{bd7}\x{c56}\x{cc2}\x{cd5}-\x{cd6}\x{d3e}\x{d57}\x{dca}\x{dcf}\x{ddf})"
    R"(\x{f43}\x{f4d}\x{f52}\x{f57}\x{f5c}\x{f69}\x{f73}\x{f75}-\x{f76}\x{f78}\x{f81}\x{f93}\x{f9d})"
    R"(\x{fa2}\x{fa7}\x{fac}\x{fb9}\x{102e}\x{1161}-\x{1175}\x{11a8}-\x{11c2}\x{1b35}\x{1f71}\x{1f73})"
    R"(\x{1f75}\x{1f77}\x{1f79}\x{1f7b}\x{1f7d}\x{1fbb}\x{1fbe}\x{1fc9}\x{1fcb}\x{1fd3}\x{1fdb}\x{1fe3})"
    R"(\x{1feb}\x{1fee}-\x{1fef}\x{1ff9}\x{1ffb}\x{1ffd}\x{2000}-\x{2001}\x{2126}\x{212a}-\x{212b})"
    R"(\x{2329}-\x{232a}\x{2adc}\x{3099}-\x{309a}\x{f900}-\x{fa0d}\x{fa10}\x{fa12}\x{fa15}-\x{fa1e})"
    R"(\x{fa20}\x{fa22}\x{fa25}-\x{fa26}\x{fa2a}-\x{fa6d}\x{fa70}-\x{fad9}\x{fb1d}\x{fb1f})"
    R"(\x{fb2a}-\x{fb36}\x{fb38}-\x{fb3c}\x{fb3e}\x{fb40}-\x{fb41}\x{fb43}-\x{fb44}\x{fb46}-\x{fb4e})"
    R"(\x{110ba}\x{11127}\x{1133e}\x{11357}\x{114b0}\x{114ba}\x{114bd}\x{115af}\x{11930})"
    R"(\x{1d15e}-\x{1d164}\x{1d1bb}-\x{1d1c0}\x{2f800}-\x{2fa1d})";
/// Characters with a combining class, which NFC may reorder (DerivedCombiningClass.txt).
constexpr const char* kMarks =
    R"(\x{300}-\x{34e}\x{350}-\x{36f}\x{483}-\x{487}\x{591}-\x{5bd}\x{5bf}\x{5c1}-\x{5c2}\x{5c4}-\x{5c5})"
    R"(\x{5c7}\x{610}-\x{61a}\x{64b}-\x{65f}\x{670}\x{6d6}-\x{6dc}\x{6df}-\x{6e4}\x{6e7}-\x{6e8})"
    R"(\x{6ea}-\x{6ed}\x{711}\x{730}-\x{74a}\x{7eb}-\x{7f3}\x{7fd}\x{816}-\x{819}\x{81b}-\x{823})"
    R"(\x{825}-\x{827}\x{829}-\x{82d}\x{859}-\x{85b}\x{898}-\x{89f}\x{8ca}-\x{8e1}\x{8e3}-\x{8ff}\x{93c})"
    R"(\x{94d}\x{951}-\x{954}\x{9bc}\x{9cd}\x{9fe}\x{a3c}\x{a4d}\x{abc}\x{acd}\x{b3c}\x{b4d}\x{bcd})"
    R"(\x{c3c}\x{c4d}\x{c55}-\x{c56}\x{cbc}\x{ccd}\x{d3b}-\x{d3c}\x{d4d}\x{dca}\x{e38}-\x{e3a})"
    R"(\x{e48}-\x{e4b}\x{eb8}-\x{eba}\x{ec8}-\x{ecb}\x{f18}-\x{f19}\x{f35}\x{f37}\x{f39}\x{f71}-\x{f72})"
    R"(\x{f74}\x{f7a}-\x{f7d}\x{f80}\x{f82}-\x{f84}\x{f86}-\x{f87}\x{fc6}\x{1037}\x{1039}-\x{103a})"
    R"(\x{108d}\x{135d}-\x{135f}\x{1714}-\x{1715}\x{1734}\x{17d2}\x{17dd}\x{18a9}\x{1939}-\x{193b})"
    R"(\x{1a17}-\x{1a18}\x{1a60}\x{1a75}-\x{1a7c}\x{1a7f}\x{1ab0}-\x{1abd}\x{1abf}-\x{1ace}\x{1b34})"
    R"(\x{1b44}\x{1b6b}-\x{1b73}\x{1baa}-\x{1bab}\x{1be6}\x{1bf2}-\x{1bf3}\x{1c37}\x{1cd0}-\x{1cd2})"
    R"(\x{1cd4}-\x{1ce0}\x{1ce2}-\x{1ce8}\x{1ced}\x{1cf4}\x{1cf8}-\x{1cf9}\x{1dc0}-\x{1dff})"
    R"(\x{20d0}-\x{20dc}\x{20e1}\x{20e5}-\x{20f0}\x{2cef}-\x{2cf1}\x{2d7f}\x{2de0}-\x{2dff})"
    R"(\x{302a}-\x{302f}\x{3099}-\x{309a}\x{a66f}\x{a674}-\x{a67d}\x{a69e}-\x{a69f}\x{a6f0}-\x{a6f1})"
    R"(\x{a806}\x{a82c}\x{a8c4}\x{a8e0}-\x{a8f1}\x{a92b}-\x{a92d}\x{a953}\x{a9b3}\x{a9c0}\x{aab0})"
    R"(\x{aab2}-\x{aab4}\x{aab7}-\x{aab8}\x{aabe}-\x{aabf}\x{aac1}\x{aaf6}\x{abed}\x{fb1e})"
    R"(\x{fe20}-\x{fe2f}\x{101fd}\x{102e0}\x{10376}-\x{1037a}\x{10a0d}\x{10a0f}\x{10a38}-\x{10a3a})"
    R"(\x{10a3f}\x{10ae5}-\x{10ae6}\x{10d24}-\x{10d27}\x{10eab}-\x{10eac}\x{10f46}-\x{10f50})"
    R"(\x{10f82}-\x{10f85}\x{11046}\x{11070}\x{1107f}\x{110b9}-\x{110ba}\x{11100}-\x{11102})"
    R"(\x{11133}-\x{11134}\x{11173}\x{111c0}\x{111ca}\x{11235}-\x{11236}\x{112e9}-\x{112ea})"
    R"(\x{1133b}-\x{1133c}\x{1134d}\x{11366}-\x{1136c}\x{11370}-\x{11374}\x{11442}\x{11446}\x{1145e})"
    R"(\x{114c2}-\x{114c3}\x{115bf}-\x{115c0}\x{1163f}\x{116b6}-\x{116b7}\x{1172b}\x{11839}-\x{1183a})"
    R"(\x{1193d}-\x{1193e}\x{11943}\x{119e0}\x{11a34}\x{11a47}\x{11a99}\x{11c3f}\x{11d42})"
    R"(\x{11d44}-\x{11d45}\x{11d97}\x{16af0}-\x{16af4}\x{16b30}-\x{16b36}\x{16ff0}-\x{16ff1}\x{1bc9e})"
    R"(\x{1d165}-\x{1d169}\x{1d16d}-\x{1d172}\x{1d17b}-\x{1d182}\x{1d185}-\x{1d18b}\x{1d1aa}-\x{1d1ad})"
    R"(\x{1d242}-\x{1d244}\x{1e000}-\x{1e006}\x{1e008}-\x{1e018}\x{1e01b}-\x{1e021}\x{1e023}-\x{1e024})"
    R"(\x{1e026}-\x{1e02a}\x{1e130}-\x{1e136}\x{1e2ae}\x{1e2ec}-\x{1e2ef}\x{1e8d0}-\x{1e8d6})"
    R"(\x{1e944}-\x{1e94a})";

}  // namespace

NfcCheck::NfcCheck()
    : unsure_(std::make_unique<const CompiledPattern>(fmt::format("[{}]|[{}]{{2}}", kUnsure, kMarks),
                                                      "normal form NFC")) {}

void NfcCheck::require(std::string_view text) {
  const auto found = matcher_.find(*unsure_, text, 0);
  if (!found) return;
  throw core::InputError(fmt::format(
      "the tokenizer wants text in Unicode's normal form NFC, and this text may have another form at "
      "byte {}; rooflm does not normalize text",
      found->first));
}

}  // namespace rooflm::text
