// Builds a program op by op, with a current scope, phase and micro-batch.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"

namespace rooflm::program {

/// A line of this project's sources, as the compiler saw it.
struct SourceLine {
  const char* file = "";
  int line = 0;
  /// The line of the call, also when used as a default argument.
  static constexpr SourceLine here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// Appends ops to a program. Scopes nest: `auto block = b.scope("h.3"); auto part = b.scope("attention");`
/// gives the ops the scope "h.3/attention".
class Builder {
 public:
  explicit Builder(Program& program, Phase phase = Phase::forward) : program_(&program), phase_(phase) {}

  /// Restores the outer scope when it goes out of scope.
  class [[nodiscard]] Scope {
   public:
    Scope(Builder& builder, std::string outer) : builder_(&builder), outer_(std::move(outer)) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { builder_->scope_ = std::move(outer_); }

   private:
    Builder* builder_;
    std::string outer_;
  };
  Scope scope(const std::string& name, SourceLine line = SourceLine::here()) {
    std::string outer = scope_;
    scope_ = scope_.empty() ? name : scope_ + "/" + name;
    if (lines_ != nullptr) lines_->try_emplace(scope_, line);
    return {*this, std::move(outer)};
  }
  /// From now on `lines` receives every scope with the line that first opens it. Borrows it.
  void note_lines(std::map<std::string, SourceLine>& lines) { lines_ = &lines; }

  /// Appends an op and returns its first output.
  TensorId op(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs, const std::string& name,
              const std::vector<core::Shape>& shapes = {}) {
    return ops(def, std::move(inputs), std::move(attrs), name, shapes).at(0);
  }
  /// Appends an op and returns all of its outputs; the reference is valid until the next op is appended.
  const std::vector<TensorId>& ops(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
                                   const std::string& name, const std::vector<core::Shape>& shapes = {}) {
    return program_->append(make(def, std::move(inputs), std::move(attrs)), name, shapes);
  }
  /// Appends an op that writes existing tensors.
  void op_into(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
               std::vector<TensorId> outputs) {
    program_->append_to(make(def, std::move(inputs), std::move(attrs)), std::move(outputs));
  }
  [[nodiscard]] Program& program() { return *program_; }

  /// An op of the current scope and phase that is not appended.
  [[nodiscard]] Op make(const OpDef& def, std::vector<TensorId> inputs, Attributes attrs) const {
    Op op;
    op.def = &def;
    op.inputs = std::move(inputs);
    op.attrs = std::move(attrs);
    op.phase = phase_;
    op.scope = scope_;
    return op;
  }

 private:
  Program* program_;
  Phase phase_;
  std::string scope_;
  std::map<std::string, SourceLine>* lines_ = nullptr;
};

}  // namespace rooflm::program
