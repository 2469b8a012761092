/// @file
/// @ingroup paper
/// PartsWalk: what becomes of the parameters that no unit of FSDP manages, and of their gradients.
#pragma once

#include "paper/books.h"
#include "paper/memory_options.h"
#include "paper/model_shape.h"
#include "paper/schedule.h"
#include "paper/segments.h"

#include <cstddef>
#include <memory>
#include <string_view>

namespace fsdp::paper {

/// Whose bytes they are, for an observer.
inline constexpr const char* kWholeModel = "model";

/// A StepWalk calls these in the order of a training.
class PartsWalk {
 public:
  PartsWalk() = default;
  virtual ~PartsWalk() = default;
  PartsWalk(const PartsWalk&) = delete;
  PartsWalk& operator=(const PartsWalk&) = delete;

  /// There are no such parameters.
  virtual bool is_empty() const = 0;
  /// Whether before() and after() are called around each operation, and not around a segment.
  virtual bool follows_forward() const { return false; }
  /// When the model is made.
  virtual void hold_parameters() = 0;
  /// The model reads what the optimizer has changed.
  virtual void refresh_copies() {}
  /// Before the backward of a micro-step.
  virtual void hold_buckets() {}
  virtual void begin_micro_step() {}
  /// An operation computes, forward, backward, or forward once more.
  virtual void before(std::size_t /*segment*/, std::string_view /*operation*/) {}
  virtual void after(std::size_t /*segment*/, std::string_view /*operation*/) {}
  /// The gradients of the weight of this operation are complete, the one at `place` in the backward
  /// of its segment.
  virtual void complete(std::size_t segment, std::size_t place, std::string_view operation,
                        int m) = 0;
  virtual void end_micro_step(int m) = 0;
  /// Sums become means in the masters' format.
  virtual void finish_gradients() = 0;
  virtual void add_squares() {}
  virtual void update(bool is_first) = 0;
  /// Each rank sends what it has updated.
  virtual void broadcast() {}
  virtual void zero_grad() = 0;
};

/// As the framework of the options has it. All arguments outlive it.
std::unique_ptr<PartsWalk> parts_walk(const ModelShape& shape, const Segments& segments,
                                      const MemoryOptions& options, const Schedule& schedule,
                                      Books& books);

}  // namespace fsdp::paper
