// The options and arguments of a command. A thin wrapper around CLI11: only command_line.cpp includes that
// library, because its header takes eight seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
class Option;
}  // namespace CLI

namespace rooflm::cli {

/// A declared option, flag or positional; these setters decide what `--help` shows.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& type_name(const std::string& name);  ///< what stands for the value: "N", "FILE"
  Option& group(const std::string& name);      ///< the heading that it stands under; "" hides it
  Option& show_default();                      ///< shows the value that the variable has now
  Option& required();
  Option& list();      ///< may be given again, and a comma parts values: all of them are taken
  Option& repeated();  ///< may be given again, with one value each: all of them are taken

 private:
  CLI::Option* option_;
};

/// The declaration of an option, flag or positional, for completion and manual pages.
struct Declared {
  std::vector<std::string> names;  ///< "-o", "--output"; none for a positional
  std::string positional;          ///< its name; "" for an option
  std::string type;                ///< "FILE", "eager|fused"; "" for a flag
  std::string fallback;            ///< its value when it is not given; "" when the help text says it
  std::string group;               ///< the heading that it stands under
  std::string help;
  std::vector<std::string> words{};  ///< values that shells offer beside those of the type (offer_words)
};

/// Values of an option or positional for completion, made when a script is written.
using Words = std::function<std::vector<std::string>()>;

/// Which dtypes help lists: those of this machine's devices, or those of any device that this build supports
/// (for packages).
enum class Offer : std::uint8_t { here, anywhere };

/// The options of one command. The variables that they fill must live until `parse` returns.
class CommandLine {
 public:
  /// `name` as the user types it, "bench"; `summary` is the first line of its help.
  CommandLine(const std::string& name, const std::string& summary, Offer offer = Offer::here);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// "--name", "-n,--name", or "name" for a positional. The value is kept as text: commands parse it, so that
  /// their messages name the allowed values. If an option is given twice, the last value counts.
  Option add_option(const std::string& name, std::string& value, const std::string& help);
  /// As above; an option or positional that takes several.
  Option add_option(const std::string& name, std::vector<std::string>& values, const std::string& help);
  /// Becomes true when the flag is given.
  Option add_flag(const std::string& name, bool& value, const std::string& help);
  /// Values that shells offer for "--name", or for a positional; its type need not list them.
  void offer_words(const std::string& name, Words words) { words_[name] = std::move(words); }
  /// Everything after "--", unchanged: the command of another program.
  void add_rest(std::vector<std::string>& words) { rest_ = &words; }
  [[nodiscard]] Offer offer() const { return offer_; }
  /// What `--help` ends with: rules and an example.
  void footer(const std::string& text);

  /// All that was declared so far, in this order.
  [[nodiscard]] std::vector<Declared> declared() const;
  [[nodiscard]] std::string footer() const;

  /// Sets a user's default for an option: `name` without dashes; "yes" or "no" for a flag. False if there is
  /// no such option; positionals have no defaults. Throws core::UsageError for a flag's other texts.
  bool set_default(const std::string& name, const std::string& text);
  /// Whether `set_default` gave it one.
  [[nodiscard]] bool has_default(const std::string& name) const { return defaults_.contains(name); }

  /// Fills the variables. False when help was asked for, and written. Throws core::UsageError for unknown
  /// options (with the nearest known one), missing values and values that are not of the type.
  [[nodiscard]] bool parse(std::vector<std::string> arguments);
  /// Whether the user gave the option. Throws for one that was not declared.
  [[nodiscard]] bool was_given(const std::string& option) const;
  /// Of --model, where it may name a directory.
  [[nodiscard]] std::vector<std::string> names_of_models() const;

 private:
  /// Throws for arguments that belong to no option.
  void check_extras() const;
  /// Rejects an empty value, which would otherwise mean the default, or the current folder; a text may be
  /// empty.
  void check_empty() const;

  using Variable = std::variant<std::string*, std::vector<std::string>*, bool*>;
  /// Remembers the variable of an option.
  void remember(const std::string& name, Variable variable);

  std::string name_;
  Offer offer_;
  std::unique_ptr<CLI::App> app_;
  std::map<std::string, Variable> variables_;    ///< by long name without dashes
  std::map<std::string, std::string> defaults_;  ///< that set_default gave
  std::map<std::string, Words> words_;           ///< by name with dashes
  std::vector<std::string>* rest_ = nullptr;
};

}  // namespace rooflm::cli
