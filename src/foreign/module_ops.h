// Which part of a model a kernel worked for, from the marks of the recorder's Python module. Private to the
// room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "foreign/foreign_run.h"
#include "foreign/operator_work.h"
#include "inject/stream_format.h"
#include "record/rows.h"

namespace rooflm::foreign {

/// How records call a module: "transformer.h.3.attn.c_attn" is "h.3/attn/c_attn", "lm_head" itself. The first
/// number of a path is that of its layer; a layer's own work is "h.3/itself".
std::string scope_of_module(const std::string& path);

/// The ops of a step of PyTorch, as far as marks tell them apart: one for each module and phase. A kernel's
/// op is that of the call that started it: in the forward pass the innermost module that is open on its
/// thread, in the backward pass the module whose gradient the thread was last said to work on.
class ModuleOps {
 public:
  using Texts = std::unordered_map<std::uint32_t, std::string>;
  /// `facts`: "module PATH" says what a module is.
  ModuleOps(const std::vector<inject::Row>& rows, const Texts& texts,
            const std::map<std::string, std::string>& facts);
  /// Of what a call that began at `start_ns` on `thread` started; nothing outside of steps, and where nothing
  /// is marked. Makes the op when it is the first. A collective (`kernel`: its name) before the first module
  /// of a backward pass gathers what that needs, and is its.
  std::optional<std::int64_t> op_of(std::uint32_t thread, std::uint64_t start_ns, std::uint32_t kernel = 0);
  /// Whether a phase other than forward is on then, or a module is open on that thread.
  [[nodiscard]] bool is_marked(std::uint32_t thread, std::uint64_t time_ns) const;
  /// The op that was at work at that moment on whatever thread; nothing where none has that module.
  [[nodiscard]] std::optional<std::int64_t> op_at(std::uint64_t time_ns) const;
  /// The phase that is on then, "forward" between the others; nothing outside of steps.
  [[nodiscard]] std::optional<std::string> phase_of(std::uint64_t start_ns) const;

  /// Steps as the host ran them, in order. Modules are marked in some of them only: marks cost time.
  struct Step {
    std::uint64_t start_ns = 0, end_ns = 0;
    bool has_modules = false;
  };
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }
  /// Adds what the operators of one step compute and move ("work N" of the facts) to the ops that kernels
  /// made; `problems` counts by sentence what could not be used. What each call needs, for its roof.
  std::vector<OpWork> add_work(std::map<std::string, std::size_t>& problems);
  /// What was noted of operators that have a price; after add_work.
  [[nodiscard]] const std::vector<PricedNote>& priced() const { return priced_; }
  /// The number of the operator's call that is innermost on that thread then; 0: none whose shapes were
  /// noted.
  [[nodiscard]] std::uint32_t call_of(std::uint32_t thread, std::uint64_t time_ns) const {
    return at(calls_, thread, time_ns, 0);
  }
  /// Which of `steps` is on then, or was last.
  [[nodiscard]] std::size_t step_of(std::uint64_t time_ns) const;
  [[nodiscard]] const std::vector<record::Op>& ops() const { return ops_; }
  [[nodiscard]] std::vector<record::Op> take() { return std::move(ops_); }

 private:
  struct Range {
    std::uint64_t start_ns = 0, end_ns = 0;
    std::uint32_t name = 0;
  };
  /// From here on it is this one that is innermost; 0: none is open.
  struct Change {
    std::uint64_t time_ns = 0;
    std::uint32_t name = 0;
  };
  using Changes = std::map<std::uint32_t, std::vector<Change>>;
  static std::vector<Change> changes_of(std::vector<Range> ranges);
  [[nodiscard]] static std::uint32_t at(const Changes& changes, std::uint32_t thread, std::uint64_t time_ns,
                                        std::uint64_t since_ns);
  /// The same of the first thread that has one.
  [[nodiscard]] static std::uint32_t at_any(const Changes& changes, std::uint64_t time_ns,
                                            std::uint64_t since_ns);
  /// The first one that is said after `time_ns` and until `until_ns`, on whatever thread.
  [[nodiscard]] static std::uint32_t next_any(const Changes& changes, std::uint64_t time_ns,
                                              std::uint64_t until_ns);
  /// Phase, module, and whether it redoes its forward pass: what an op is.
  using Place = std::tuple<std::string, std::uint32_t, bool>;
  [[nodiscard]] const Range* phase_at(std::uint64_t start_ns) const;
  void mark_steps(const std::map<std::uint32_t, std::vector<Range>>& modules);
  [[nodiscard]] std::optional<std::int64_t> find_op(const OperatorNote& note) const;
  std::int64_t number_of(const std::string& phase, std::uint32_t module, bool is_recomputed);

  const Texts& texts_;
  const std::map<std::string, std::string>& facts_;
  std::uint64_t first_ns_ = ~std::uint64_t{0}, last_ns_ = 0;  ///< of steps
  std::vector<Step> steps_;
  std::vector<Range> phases_;            ///< backward and optimizer, in order
  Changes modules_, gradients_, calls_;  ///< by thread
  std::vector<PricedNote> priced_;
  std::map<Place, std::int64_t> numbers_;
  std::map<std::string, std::uint32_t> module_numbers_;  ///< by path, once work is added
  std::vector<record::Op> ops_;
};

}  // namespace rooflm::foreign
